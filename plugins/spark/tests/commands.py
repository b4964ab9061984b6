"""Runs commands in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugins.lake.tests.landing import test_cli

if TYPE_CHECKING:
    from typer.testing import Result


def run(*arguments: object) -> Result:
    return test_cli.run(*arguments)
