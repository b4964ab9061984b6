"""The program ``lakelog``: starts the command line, or reports a missing package in one line."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Final

NEEDED: Final = ("typer", "rich")
"""Distributions that the commands need."""
MISSING_EXIT_CODE: Final = 2
INTERRUPTED_EXIT_CODE: Final = 130


def run() -> None:
    """Run the command that the arguments name, and exit with its code."""
    try:
        _start()
    except KeyboardInterrupt:  # during the import of the commands, which takes a while
        sys.exit(INTERRUPTED_EXIT_CODE)


def _start() -> None:
    if sys.argv[1:] == ["--version"]:  # works without the packages
        from importlib.metadata import version

        sys.stdout.write(f"{version('lakelog-core')}\n")
        return
    missing = next((name for name in NEEDED if find_spec(name) is None), None)
    if missing is not None:
        sys.stderr.write(f"lakelog needs {missing} here: pip install lakelog-tools\n")
        sys.exit(MISSING_EXIT_CODE)
    from lakelog_cli.app import start

    start()


if __name__ == "__main__":
    run()
