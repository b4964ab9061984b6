"""Imports all that a store needs, by opening one: for the process that others are forked from."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import lakelog

# Without compiled code: where it was imported, a fork draws the same numbers as its siblings.
_LATER: tuple[str, ...] = ("numpy", "lakelog_cli.app")


def _use_a_store(path: Path) -> None:
    with lakelog.open(path, segment_size_bytes=1 << 16, accelerator="none") as store:
        store.put(lakelog.Message("t", b"body", queue_id=0, keys="key"))
    with lakelog.open(path, mode="read", segment_size_bytes=1 << 16, accelerator="none") as reader:
        assert len(list(reader.read("t", 0))) == 1


with suppress(ImportError):
    for _each in _LATER:
        import_module(_each)
with tempfile.TemporaryDirectory() as _folder, suppress(Exception):  # then others import it later
    _use_a_store(Path(_folder) / "store")
