"""Runs a program that prints its progress line by line, and kills it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from threading import Timer
from typing import Final

ROOT: Final = Path(__file__).parents[2]


def killed(command: Sequence[str], after_seconds: float, patience_seconds: float = 60) -> list[str]:
    """Kill a program some time after its first line; return its complete lines of output.

    Fails if the program ends by itself, or prints nothing within ``patience_seconds``.
    """
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        giving_up = Timer(patience_seconds, process.kill)
        giving_up.start()
        first = process.stdout.readline()
        giving_up.cancel()
        killing = Timer(after_seconds, process.kill)
        killing.start()
        rest = process.stdout.read()
        killing.join()
        errors = process.stderr.read()
    assert first, f"it wrote nothing: {errors}"
    assert process.returncode == -9, f"it ended by itself: {errors}"
    lines = (first + rest).split("\n")
    return lines[:-1]  # the last one may be cut
