"""Runs the program as a user does, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

HAS_INDEX: Final = find_spec("lakelog_hash_index") is not None
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(autouse=True)
def _small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole files are allocated: of the default size, those of a test would fill a small disk."""
    monkeypatch.setenv("LAKELOG_SEGMENT_SIZE_BYTES", "4MiB")
    monkeypatch.setenv("LAKELOG_CONSUME_QUEUE__FILE_ENTRIES", "100")
    if HAS_INDEX:  # without it, its settings are unknown keys
        monkeypatch.setenv("LAKELOG_HASH_INDEX__SLOTS", "100")
        monkeypatch.setenv("LAKELOG_HASH_INDEX__ENTRIES", "400")


@pytest.fixture
def lakelog(tmp_path: Path) -> Run:
    """Give a function that runs ``lakelog ARGS``, in an empty directory."""

    def run(*args: object, text: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "lakelog_cli.main", *map(str, args)],
            input=text,
            capture_output=True,
            text=True,
            timeout=60,
            cwd=tmp_path,
            env=os.environ | {"COLUMNS": "200", "NO_COLOR": "1"},
            check=False,
        )

    return run


@pytest.fixture
def store(lakelog: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a store with three messages in it, whose files alone say how long its segments are."""
    monkeypatch.delenv("LAKELOG_SEGMENT_SIZE_BYTES")
    made = lakelog("put", "store", "orders", "a", "b", "c", "--queue", 1, "--set", SEGMENT)
    assert made.returncode == 0, made.stderr
    return tmp_path / "store"


SEGMENT = "segment_size_bytes=64KiB"
