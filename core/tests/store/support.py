"""Small stores, and what stands on the disk."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import lakelog
from lakelog import Message, PutResult, Store, accelerate
from lakelog.errors import LakelogError
from lakelog.files.filesystem import File, RealFileSystem
from lakelog.format.layout import LOCK_FILE, RECORD_MIN_BYTES
from lakelog.log.sources import FileSource
from lakelog.processes.shared_page import HEARTBEAT, PAGE_FILE
from lakelog_testing import FaultyFile

NEVER: Mapping[str, Any] = {"attach": {"take_over": False}}
"""Settings of a process that never has the services."""
SEGMENT = 16 << 10


def compiled() -> list[Any]:
    """The plugin of the compiled code, if this test runs with that."""
    return [] if accelerate.current() is None else [import_module("lakelog_native.plugin")]


def open_small(path: Path, **more: Any) -> Store:
    """Open a store of small segments; plugins that happen to be installed play no part."""
    given = {
        "plugins": compiled(),
        "flush": "none",
        "segment_size_bytes": SEGMENT,
        "preallocate": False,
        **more,
    }
    return lakelog.open(path, **given)


def read_small(path: Path, **more: Any) -> Store:
    return lakelog.open(path, mode="read", plugins=[], **more)


def record_bytes(topic: str = "t") -> int:
    return RECORD_MIN_BYTES + len(topic)


def a_record_of(size: int, topic: str = "t") -> Message:
    """A message whose record has exactly ``size`` bytes."""
    return Message(topic, b"b" * (size - record_bytes(topic)), queue_id=0)


def fill(store: Store, count: int, body_bytes: int = 400) -> list[PutResult]:
    return [
        store.put(Message("t", b"%06d" % number + b"." * (body_bytes - 6), queue_id=0))
        for number in range(count)
    ]


def a_store(path: Path, count: int = 100, **more: Any) -> list[PutResult]:
    with open_small(path, **more) as store:
        return fill(store, count)


def segments(path: Path) -> list[Path]:
    return sorted((path / "commitlog").iterdir())


def overwrite(path: Path, offset: int, data: bytes) -> None:
    """Write into a segment of the log, past whoever has it open."""
    with (path / "commitlog" / f"{offset - offset % SEGMENT:020d}").open("r+b") as file:
        file.seek(offset % SEGMENT)
        file.write(data)


def tree(path: Path) -> dict[str, str]:
    """Every name below ``path``, with a digest of each file's content."""
    if not path.exists():
        return {}
    if path.is_file():
        return {"": _digest(path)}
    return {
        str(each.relative_to(path)): _digest(each) if each.is_file() else "directory"
        for each in sorted(path.rglob("*"))
    }


def _digest(path: Path) -> str:
    content = bytearray(path.read_bytes())
    if path.name == PAGE_FILE:  # a living owner, of another process perhaps, says that it lives
        content[8 * HEARTBEAT : 8 * HEARTBEAT + 8] = bytes(8)
    return hashlib.sha256(content).hexdigest()


class FaultyFiles(RealFileSystem):
    """The operating system's files, each of which can be made to fail.

    :ivar opened: every file that was opened
    :ivar failing: what fails with ``EIO`` in files whose name is a segment's
    """

    def __init__(self) -> None:
        self.opened: list[FaultyFile] = []
        self.failing: set[str] = set()

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        file = FaultyFile(super().open(path, write=write, create=create))
        self.opened.append(file)
        if path.name.isdigit():
            file.failing = self.failing
        return file


def is_eio(error: BaseException | None) -> bool:
    return isinstance(error, OSError) and error.errno == errno.EIO


def bodies(found: Iterable[Any]) -> list[bytes]:
    return [bytes(each.body) for each in found]


@contextmanager
def refused(
    path: Path, kind: type[LakelogError], *words: str
) -> Iterator[pytest.ExceptionInfo[LakelogError]]:
    """Expect an error that says ``words``, and a tree of files that stays as it is."""
    before = tree(path)
    with pytest.raises(kind) as caught:
        yield caught
    for word in words:
        assert word in str(caught.value)
    assert tree(path) == before


def let_others_read(path: Path) -> None:
    """Begin a store as earlier versions and RocketMQ did: everybody may read what is made in it."""
    path.mkdir(mode=0o755, parents=True)
    (path / LOCK_FILE).touch(mode=0o644)


class FileBounds:
    """The bounds of a log that no process has open, as its files are at each call."""

    def __init__(self, source: FileSource) -> None:
        self._source = source

    def minimum(self) -> int:
        return self._source.first() or 0

    def end(self) -> int | None:
        return None
