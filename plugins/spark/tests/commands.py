"""Runs commands of this package, and those of the lake, in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakelog_lake import plugin as lake
from lakelog_spark import plugin as spark
from plugins.lake.tests.landing import test_cli

if TYPE_CHECKING:
    from typer.testing import Result


def run(*arguments: object) -> Result:
    return test_cli.run(*arguments, plugins=(lake, spark))
