"""Runs a program beside a test; it prints ``ready``, and works until it reads ``stop``."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def working(command: Sequence[str], patience_seconds: float = 60) -> Iterator[list[str]]:
    """Run a program during the block; yields a list that has its output after the block.

    At the end the program gets the line ``stop`` on its standard input, which is then closed. It
    must exit with code 0.
    """
    said: list[str] = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield said
        finally:
            output, _ = process.communicate("stop\n", timeout=patience_seconds)
            said += output.splitlines()
    assert process.returncode == 0
