"""Runs commands of lakelog and of its plugins in this process."""

from __future__ import annotations

from functools import cache

import pytest
import typer.main
import typer.testing
from typer.testing import CliRunner, Result

from lakelog.registry import Registry
from lakelog_cli.app import make_app


@cache
def app() -> typer.Typer:
    """The application with the commands of all plugins."""
    made = make_app()
    Registry.load(None, {}).events.cli_commands(made)
    return made


def invoke(*words: object) -> Result:
    """Run a command; its parser, which typer makes anew for each, is made once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", _parser)
        return CliRunner().invoke(app(), [str(each) for each in words])


_parser = cache(typer.main.get_command)
