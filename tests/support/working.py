"""Runs a program beside a test: it says ``ready``, and works until it is told to stop."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def working(command: Sequence[str], patience_seconds: float = 60) -> Iterator[list[str]]:
    """Let it work while the block runs; gives what else it says, once the block has ended.

    It is told to stop by a line of its standard input, which then ends. It must end well.
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
