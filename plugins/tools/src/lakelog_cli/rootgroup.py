"""The group of all commands: imports the one that runs, or names the package it needs."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, Final

import typer

from lakelog.errors import LakelogError
from lakelog_cli.group import LakelogGroup

_FOLDER: Final = "lakelog_cli.commands"
_ELSEWHERE: Final = {
    "dispatch": ("lakelog-lake", "lakehouse"),
    "export": ("lakelog-lake", "lakehouse"),
    "lake": ("lakelog-lake", "lakehouse"),
    "broker": ("lakelog-broker", "broker"),
    "promote": ("lakelog-replication", "replication"),
    "replicate": ("lakelog-replication", "replication"),
    "replication": ("lakelog-replication", "replication"),
    "sql": ("lakelog-lake", "lakehouse"),
}
"""Commands of plugins: the distribution of each, and lakelog's extra that includes it."""
_OR_SPARK: Final = ", or 'lakelog[spark]' for --engine spark"


class NotInstalled(LakelogError):
    """A command of a plugin that is not installed, or is switched off; wrong usage."""


class RootGroup(LakelogGroup):
    """``lakelog COMMAND``."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command, and import it if it is lakelog's own; raises :class:`NotInstalled`."""
        name = args[0]
        if name in self.commands and find_spec(f"{_FOLDER}.{name}") is not None:
            self.commands[name] = _imported(name)
        elif name in _ELSEWHERE and name not in self.commands:
            raise NotInstalled(_lacking(name))
        return super().resolve_command(ctx, args)


def plugin_of(name: str) -> str | None:
    """The plugin that has a command; ``None`` if that is not known."""
    distribution, _ = _ELSEWHERE.get(name, ("", ""))
    return distribution.removeprefix("lakelog-") or None


def _imported(name: str) -> Any:
    """The command as a click object; a module with subcommands has them in ``app``."""
    module = import_module(f"{_FOLDER}.{name}")
    app = getattr(module, "app", None)
    if app is None:
        app = typer.Typer(rich_markup_mode="rich", add_completion=False)
        app.command(name, epilog=getattr(module, "EPILOG", None))(getattr(module, name))
    return typer.main.get_command(app)


def _lacking(name: str) -> str:
    distribution, extra = _ELSEWHERE[name]
    try:
        found = version(distribution)
    except PackageNotFoundError:
        return (
            f"the command '{name}' comes with {distribution}, which is not installed: "
            f"pip install 'lakelog[{extra}]'{_OR_SPARK if extra == 'lakehouse' else ''}"
        )
    return (
        f"the command '{name}' comes with {distribution} {found}, which is installed and switched "
        "off: see LAKELOG_DISABLE_PLUGINS, and 'lakelog plugins'"
    )
