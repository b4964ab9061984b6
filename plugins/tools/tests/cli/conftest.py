"""Runs commands as a user types them: in this process, or in a separate one."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Final, TextIO

import pytest

from lakelog_cli.main import run as main

HAS_INDEX: Final = find_spec("lakelog_hash_index") is not None
Run = Callable[..., "subprocess.CompletedProcess[str]"]


_INDEX: Final = {"LAKELOG_HASH_INDEX__SLOTS": "100", "LAKELOG_HASH_INDEX__ENTRIES": "400"}
ENVIRON: Final = {
    "LAKELOG_SEGMENT_SIZE_BYTES": "4MiB",
    "LAKELOG_CONSUME_QUEUE__FILE_ENTRIES": "100",
    "COLUMNS": "200",
    "NO_COLOR": "1",
    **(_INDEX if HAS_INDEX else {}),  # without it, its settings are unknown keys
}
"""Whole files are allocated: of the default size, those of a test would fill a small disk."""


@pytest.fixture(autouse=True)
def _environ(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def lakelog(tmp_path: Path) -> Run:
    """A function that runs ``lakelog ARGS`` in this process, in an empty directory.

    An interpreter with all imports takes half a second of a core; the program is the same.
    """

    def run(
        *args: object, text: str = "", stdin: TextIO | None = None
    ) -> subprocess.CompletedProcess[str]:
        with pytest.MonkeyPatch.context() as patch:
            out, err = _stream(), _stream()
            patch.chdir(tmp_path)
            patch.setattr(sys, "argv", ["lakelog", *map(str, args)])
            patch.setattr(sys, "stdin", stdin or _stream(text))
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            code: object = 0
            try:
                main()
            except SystemExit as ended:
                code = ended.code or 0
            assert isinstance(code, int)
            return subprocess.CompletedProcess(sys.argv, code, _text(out), _text(err))

    return run


def _stream(text: str = "") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8")


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    written = stream.buffer
    assert isinstance(written, io.BytesIO)
    return written.getvalue().decode()


@pytest.fixture
def program(tmp_path: Path) -> Run:
    """A function that runs ``lakelog ARGS`` in a separate process, in the same directory.

    For a store that another process has open, and for its own standard streams.
    """

    def run(*args: object, text: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "lakelog_cli.main", *map(str, args)],
            input=text,
            capture_output=True,
            text=True,
            timeout=60,
            cwd=tmp_path,
            check=False,
        )

    return run


@pytest.fixture
def store(lakelog: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with three messages; only its files show the size of its segments."""
    monkeypatch.delenv("LAKELOG_SEGMENT_SIZE_BYTES")
    made = lakelog("put", "store", "orders", "a", "b", "c", "--queue", 1, "--set", SEGMENT)
    assert made.returncode == 0, made.stderr
    return tmp_path / "store"


SEGMENT = "segment_size_bytes=64KiB"


def spoil_second(lakelog: Run, store: Path) -> int:
    """Change the body of the second message; return the offset of its record."""
    row = json.loads(lakelog("scan", store, "--json").stdout.splitlines()[1])
    with next((store / "commitlog").iterdir()).open("r+b") as file:
        file.seek(row["physical_offset"] + 88)
        file.write(b"!")
    return int(row["physical_offset"])
