"""A rebuild that a crash interrupts: the next open has queues as log and tombstones give them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

import lakelog
from lakelog import Message, StoredMessage
from lakelog.files.filesystem import RealFileSystem
from lakelog_doctor.check import check
from lakelog_doctor.rebuild import rebuild
from lakelog_queues.dispatching.tombstones import read_tombstones
from lakelog_testing.crash import Image, SimFileSystem, images
from lakelog_testing.samples import copy_store

FILES: Final = RealFileSystem()
TAGS: Final = ("a", "b", "c")
SETTINGS: Final[dict[str, Any]] = {
    "flush": "none",
    "segment_size_bytes": 16 << 10,
    "preallocate": False,
    "hash_index": {"slots": 16, "entries": 128},
}


def settings(*, ext: bool) -> dict[str, Any]:
    queues = {"file_entries": 20, "ext_enabled": ext, "ext_file_size_bytes": 500}
    return {**SETTINGS, "consume_queue": queues}


def fill(store: lakelog.Store, topic: str) -> None:
    for number in range(10):
        tag = TAGS[number % len(TAGS)]
        store.put(Message(topic, b"body" * 20, tags=tag, keys="key", queue_id=0))


def make(path: Path, *, ext: bool) -> int:
    """Make a store with a removed topic that has later messages; return its tombstone's end.

    The first messages have no extension units, which a rebuild adds: it changes all addresses.
    """
    with lakelog.open(path, **settings(ext=False)) as store:
        fill(store, "kept")
        fill(store, "gone")
    with lakelog.open(path, **settings(ext=ext)) as store:
        fill(store, "kept")
        store.delete_topic("gone")
        buried = store.max_offset
        fill(store, "gone")
        fill(store, "kept")
    return buried


def offsets(messages: Iterable[StoredMessage]) -> list[int]:
    return [each.physical_offset for each in messages]


def check_store(store: lakelog.Store, buried: int) -> None:
    for topic, first in (("kept", 0), ("gone", buried)):
        alive = [each for each in store.scan() if each.topic == topic]
        alive = [each for each in alive if each.physical_offset >= first]
        assert offsets(store.read(topic, 0)) == offsets(alive)
        for tag in TAGS:
            found = store.get(topic, 0, alive[0].queue_offset, 100, tags=tag).messages
            assert offsets(found) == [each.physical_offset for each in alive if each.tags == tag]
        assert sorted(offsets(store.query(topic, "key"))) == offsets(alive)


def checked(path: Path, given: dict[str, Any]) -> int:
    """Check a store after a crash; returns the end of the topic's tombstone, 0 without one."""
    buried = read_tombstones(FILES, path).get("gone", 0)
    for mode in ("read", "write"):
        with lakelog.open(path, mode=mode, **given) as store:
            check_store(store, buried)
    assert list(check(path, **given)) == []
    return buried


def crashed(root: Path, given: dict[str, Any]) -> Iterator[Image]:
    """Directories that crashes of a rebuild could leave, in its order, without its own folder."""
    system = SimFileSystem(root)
    try:
        rebuild(root / "store", files=system, **given)
        points = system.points
    finally:
        system.close()
    seen = set[int]()
    for point in points:
        for image in map(without_temporary, images(point, Random(1), 4)):
            if image.digest() not in seen:
                seen.add(image.digest())
                yield image


def without_temporary(image: Image) -> Image:
    """The image without what no open reads."""
    temporary = "store/lakelog/tmp"
    folders = tuple(each for each in image.folders if not each.startswith(temporary))
    files = {name: data for name, data in image.files.items() if not name.startswith(temporary)}
    return Image(image.kind, folders, files)


def _cannot(files: RealFileSystem, one: Path, other: Path) -> bool:
    return False


@pytest.mark.parametrize(
    ("exchange", "ext"),
    [
        (RealFileSystem.exchange, True),
        (_cannot, False),
        pytest.param(RealFileSystem.exchange, False, marks=pytest.mark.slow),
        pytest.param(_cannot, True, marks=pytest.mark.slow),
    ],
)
def test_the_next_open_is_right(
    exchange: Callable[[RealFileSystem, Path, Path], bool],
    ext: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RealFileSystem, "exchange", exchange)
    root, given = tmp_path / "root", settings(ext=ext)
    buried = make(root / "store", ext=ext)
    copy_store(root / "store", tmp_path / "before")
    assert checked(tmp_path / "before", given) == buried
    ends = set()
    for image in crashed(root, given):
        image.write_out(tmp_path / "image")
        ends.add(checked(tmp_path / "image" / "store", given))
        shutil.rmtree(tmp_path / "image")
    assert ends == {buried, 0}
    assert checked(root / "store", given) == 0
