"""The offsets of all groups, committed by many threads, durable at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakelog.errors import CorruptConfig, SettingsError, StoreClosed, StoreError
from lakelog.files.filesystem import RealFileSystem
from lakelog_queues.consumers.offsettable import Commit, OffsetTable
from lakelog_rocketmq.config import backup_of


def a_table(path: Path) -> OffsetTable:
    return OffsetTable(RealFileSystem(), path, lambda: True)


def file_of(path: Path) -> Path:
    return path / "config" / "consumerOffset.json"


def test_nothing_is_written_before_the_first_commit(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    assert table.groups() == {}
    table.close()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StoreClosed):
        table.commit("g", "t", {0: 1})


def test_threads_share_writes_and_lose_nothing(tmp_path: Path) -> None:
    table = a_table(tmp_path)

    def work(number: int) -> None:
        for offset in range(1, 21):
            table.commit(f"g{number}", "t", {number: offset})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert a_table(tmp_path).groups() == {f"g{n}": {"t": {n: 20}} for n in range(8)}


class Meanwhile(RealFileSystem):
    """Commits offsets of group ``h`` from another thread while the file is replaced.

    :ivar table: commits them; set by the test
    """

    def __init__(self, path: Path) -> None:
        self.file = file_of(path)
        self.table = OffsetTable(self, path, lambda: True)
        self.thread = threading.Thread(target=self.commit)

    def commit(self) -> None:
        self.table.commit("h", "t", {0: 5})

    def rename(self, source: Path, target: Path) -> None:
        if target == self.file and self.thread.ident is None:
            self.thread.start()
            self.thread.join(0.3)  # it waits for the end of this write
        super().rename(source, target)


@pytest.mark.parametrize("other", [False, True])
def test_what_is_committed_during_a_write_is_in_the_next_one(tmp_path: Path, other: bool) -> None:
    """In the same process, or in another one."""
    files = Meanwhile(tmp_path)
    table = files.table
    if other:
        files.table = a_table(tmp_path)
    table.commit("g", "t", {0: 1})
    files.thread.join(60)
    assert a_table(tmp_path).groups() == {"g": {"t": {0: 1}}, "h": {"t": {0: 5}}}


def test_a_commit_that_failed_is_in_the_next_write(tmp_path: Path) -> None:
    class Full(RealFileSystem):
        is_full = True

        def rename(self, source: Path, target: Path) -> None:
            if self.is_full:
                raise OSError(28, "No space left on device", str(target))
            super().rename(source, target)

    files = Full()
    table = OffsetTable(files, tmp_path, lambda: True)
    with pytest.raises(StoreError, match="No space left"):
        table.commit("g", "t", {0: 1})
    files.is_full = False
    assert table.committed("g", "t") == {0: 1}
    table.commit("h", "t", {0: 5})
    assert a_table(tmp_path).groups() == {"g": {"t": {0: 1}}, "h": {"t": {0: 5}}}


def test_a_commit_keeps_what_others_committed_since(tmp_path: Path) -> None:
    one, other = a_table(tmp_path), a_table(tmp_path)
    one.commit("g", "t", {0: 1})
    other.commit("h", "t", {0: 5})
    other.commit("g", "t", {1: 6})
    one.commit("g", "t", {0: 2})
    assert a_table(tmp_path).groups() == {"g": {"t": {0: 2, 1: 6}}, "h": {"t": {0: 5}}}


def test_the_backup_stands_in_for_a_torn_file(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    table.commit("g", "t", {0: 1})
    table.commit("g", "t", {0: 2})
    content = file_of(tmp_path).read_bytes()
    file_of(tmp_path).write_bytes(content[: len(content) // 2])
    again = a_table(tmp_path)
    assert again.committed("g", "t") == {0: 1}
    again.commit("g", "t", {0: 7})
    assert a_table(tmp_path).committed("g", "t") == {0: 7}
    backup_of(file_of(tmp_path)).write_bytes(b"{")
    file_of(tmp_path).write_bytes(b"{")
    with pytest.raises(CorruptConfig):
        a_table(tmp_path).committed("g", "t")


def test_forget(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    for group, topic in [("g", "a"), ("g", "b"), ("h", "a")]:
        table.commit(group, topic, {0: 1})
    table.forget("g", "a")
    assert a_table(tmp_path).groups() == {"g": {"b": {0: 1}}, "h": {"a": {0: 1}}}
    table.forget("g")
    assert a_table(tmp_path).groups() == {"h": {"a": {0: 1}}}


@pytest.mark.parametrize("group", ["", "a@b", "a b", "ä", "a/b", "g\n", "x" * 256])
def test_names_that_rocketmq_forbids(group: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="consumer group's name"):
        a_table(tmp_path).commit(group, "t", {0: 1})
    for topic in ("", "a@b"):
        with pytest.raises(SettingsError, match="topic"):
            a_table(tmp_path).commit("x" * 255, topic, {0: 1})


def test_what_brokers_accept_stops_no_other_commit(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    odd: list[Commit] = [("a@b", "t", {0: 1}), ("billing.v2", "t", {0: 2}), ("g", "t", {0: -1})]
    table.commit_all([*odd, ("g", "u", {0: 3})], as_broker=True)
    again = a_table(tmp_path)
    assert again.groups() == {
        "a@b": {"t": {0: 1}},
        "billing.v2": {"t": {0: 2}},
        "g": {"u": {0: 3}},
    }
    assert again.committed("g", "t") == {}, "a negative offset stands for none"
    assert b'"t@g":{"0":-1}' in b"".join(file_of(tmp_path).read_bytes().split())
    again.forget("a@b")
    assert "a@b" not in a_table(tmp_path).groups()


def test_a_commit_sets_back_no_offset_of_another_process(tmp_path: Path) -> None:
    one, other = a_table(tmp_path), a_table(tmp_path)
    one.commit("g", "t", {0: 1})
    other.commit("g", "t", {0: 2})
    assert one.committed("g", "t") == {0: 2}
    one.commit("g", "u", {0: 5})
    assert a_table(tmp_path).groups() == {"g": {"t": {0: 2}, "u": {0: 5}}}
