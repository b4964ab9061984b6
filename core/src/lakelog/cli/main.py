"""The program ``lakelog``: starts the command line, or says in one line what keeps it from it."""

from __future__ import annotations

import sys
from typing import Final

NEEDED: Final = ("typer", "rich")
"""What the extra ``cli`` brings."""
MISSING_EXIT_CODE: Final = 2


INTERRUPTED_EXIT_CODE: Final = 130


def run() -> None:
    """Run the command that the arguments name, and exit with its code."""
    try:
        _start()
    except KeyboardInterrupt:  # while the commands are still loaded, which takes a while
        sys.exit(INTERRUPTED_EXIT_CODE)


def _start() -> None:
    try:
        from lakelog.cli.app import start
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in NEEDED:
            raise
        sys.stderr.write(f"lakelog needs {error.name} here: pip install lakelog-core[cli]\n")
        sys.exit(MISSING_EXIT_CODE)
    start()


if __name__ == "__main__":
    run()
