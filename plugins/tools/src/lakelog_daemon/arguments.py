"""Hands a child arguments that may be secrets: any user of the machine can read a command line.

They are in a file in memory without a name, which the child inherits. As a program, this module is
the command line with such arguments: ``python -m lakelog_daemon.arguments DESCRIPTOR WORD...`` runs
``lakelog WORD...``, followed by the JSON array in the file of that descriptor.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import IO


def hidden(text: str) -> IO[bytes]:
    """A file in memory with ``text``, for a child to read; raises ``OSError``."""
    file = os.fdopen(os.memfd_create("lakelog-arguments"), "w+b")
    file.write(text.encode())
    file.seek(0)
    return file


def lakelog(descriptor: int, *words: str) -> tuple[str, ...]:
    """The command for ``lakelog WORDS``, whose further arguments are in a file of :func:`hidden`.

    :param descriptor: the file in the child
    """
    return (sys.executable, "-m", __name__, str(descriptor), *words)


def main(words: Sequence[str]) -> None:
    """Run the command line, which exits with its code."""
    from runpy import run_module

    descriptor, *shown = words
    with open(int(descriptor), "rb", closefd=descriptor != "0") as file:
        sys.argv[1:] = [*shown, *json.load(file)]
    run_module("lakelog", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
