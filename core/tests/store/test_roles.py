"""Roles of a store: who owns, who attaches, who reads, and what each is refused."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
from core.tests.store.support import NEVER, SEGMENT, a_store, bodies, open_small, read_small
from core.tests.store.workers import SERVE, a_worker, an_owner
from lakelog import Message, PutRefused, Store, aio
from lakelog.errors import SettingsError, StoreError, StoreLocked, StoreReadOnly
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.shared.ownership import is_owned
from lakelog.files.shared.queue_table import FIRST_SLOTS, table_path
from lakelog.format.layout import segment_name
from lakelog.interfaces import DiskState
from lakelog_testing.descriptors import open_in
from plugins.retention.tests.maintenance.support import MaintenancePlugin
from tests.support.waiting import until

pytestmark = pytest.mark.both_ways

FILES = RealFileSystem()


# --- who gets which role -----------------------------------------------------------------------


def test_many_that_start_at_once_have_one_owner(tmp_path: Path) -> None:
    with ExitStack() as stack:
        workers = [stack.enter_context(a_worker(tmp_path)) for _ in range(6)]
        roles = [each.hear()["role"] for each in workers]
        assert sorted(roles) == ["attach"] * 5 + ["owner"]
        for number, each in enumerate(workers):
            each.say("put", f"w{number}", 20)
        for each in workers:
            assert len(each.hear()["offsets"]) == 20
        found = bodies_of(tmp_path)
    for number in range(6):
        own = [each for each in found if each.startswith(f"w{number} ")]
        assert own == [f"w{number} {at}" for at in range(20)]
    assert len(found) == 120


def bodies_of(path: Path) -> list[str]:
    with read_small(path) as store:
        return [each.decode() for each in bodies(store.scan())]


def test_who_wants_the_store_alone_is_told_who_has_it(tmp_path: Path) -> None:
    with an_owner(tmp_path) as first, a_worker(tmp_path) as second:
        assert second.hear() == {"role": "attach"}
        match = f"process {first.process.pid} .*has this store open, and mode='exclusive' .*close"
        with pytest.raises(StoreLocked, match=match):
            open_small(tmp_path, mode="exclusive")
        assert first.ask("put", "a", 1)["offsets"]


@pytest.mark.parametrize("mode", ["write", "exclusive"])
def test_who_has_the_store_alone_lets_nobody_in(tmp_path: Path, mode: str) -> None:
    with a_worker(tmp_path, "exclusive") as first:
        assert first.hear() == {"role": "owner"}
        assert first.ask("put", "a", 1)["offsets"] == [0]
        match = f"process {first.process.pid} .*lets nobody in: mode='exclusive' .*mode='read'"
        with pytest.raises(StoreLocked, match=match) as refused:
            open_small(tmp_path, mode=mode)
        assert refused.value.owner_pid == first.process.pid
        assert bodies_of(tmp_path) == ["a 0"]
        first.kill()
        with open_small(tmp_path, mode=mode) as store:
            assert bodies(store.scan()) == [b"a 0"]


def test_of_several_that_want_it_alone_one_has_it(tmp_path: Path) -> None:
    with ExitStack() as stack:
        workers = [stack.enter_context(a_worker(tmp_path, "exclusive")) for _ in range(4)]
        said = [each.hear() for each in workers]
        assert [each.get("role") for each in said].count("owner") == 1
        assert [each.get("error") for each in said].count("StoreLocked") == 3


@pytest.mark.parametrize("mode", ["auto", "owner", "attach"])
def test_former_modes_are_write_and_say_so(tmp_path: Path, mode: Any) -> None:
    for role in ("owner", "attach"):
        with open_small(tmp_path) if role == "attach" else nullcontext():
            with pytest.warns(DeprecationWarning, match=f"mode='{mode}' .*'write'") as warned:
                store = lakelog.open(tmp_path, mode=mode, plugins=[], segment_size_bytes=SEGMENT)
            assert [each.filename for each in warned] == [__file__]
            assert store.role == role
            store.close()


def test_former_modes_of_event_loops_say_so_too(tmp_path: Path) -> None:
    async def work() -> None:
        with pytest.warns(DeprecationWarning, match="mode='auto' is deprecated") as warned:
            opened = aio.open(tmp_path, mode="auto", plugins=[])
        assert [each.filename for each in warned] == [__file__]
        async with opened as store:
            await store.put(Message("t", b"x"))

    asyncio.run(work())


def test_an_empty_store_can_be_attached_to(tmp_path: Path) -> None:
    with open_small(tmp_path), open_small(tmp_path) as attached:
        assert bodies(attached.scan()) == []
        assert attached.topics() == []
        assert attached.put(Message("t", b"first", queue_id=0)).physical_offset == 0


@pytest.mark.parametrize("ahead", ["owner", "attach"])
def test_a_segment_that_one_has_made_ahead_another_one_fills(tmp_path: Path, ahead: str) -> None:
    """Who made it has a descriptor of it, and never wrote there; a close deletes unused ones."""
    stores = {"owner": open_small(tmp_path, preallocate=True)}
    stores["attach"] = open_small(tmp_path, preallocate=True)
    (other,) = stores.keys() - {ahead}
    stores[ahead].put(Message("t", bytes(100), queue_id=0))  # which asks for the next segment
    until(lambda: len(list((tmp_path / "commitlog").iterdir())) == 2)
    for _ in range(3 * SEGMENT // 1000):
        stores[other].put(Message("t", bytes(1000), queue_id=0))
    for name in (other, ahead):
        stores[name].close()
    with open_small(tmp_path) as store:
        assert store.recovery is not None
        assert store.recovery.clean
        assert len(bodies(store.scan())) == 1 + 3 * SEGMENT // 1000


def test_queues_that_another_process_has_added_are_counted_on(tmp_path: Path) -> None:
    """So many that a larger table of queues replaced the first: half of its slots stay free."""
    given: dict[str, Any] = {"dispatchers": []}  # without files per queue
    with open_small(tmp_path, **given) as store, open_small(tmp_path, **given) as other:
        other.put(Message("t", b"", queue_id=0))
        assert table_path(tmp_path, 1).exists()
        store.put_batch([Message(f"t{number}", b"") for number in range(FIRST_SLOTS // 2)])
        assert not table_path(tmp_path, 1).exists()
        store.put(Message("new", b"", queue_id=0))
        assert other.put(Message("new", b"", queue_id=0)).queue_offset == 1
        assert store.put(Message("new", b"", queue_id=0)).queue_offset == 2


def test_nonsense_in_the_settings_of_the_page_lets_nobody_in(tmp_path: Path) -> None:
    with open_small(tmp_path) as owner:
        assert owner._owned is not None
        owner._owned.page.memory[4104:4112] = b"nonsense"
        with pytest.raises(StoreError, match="settings in its shared page are damaged"):
            open_small(tmp_path)
        owner.put(Message("t", b"unharmed"))


def test_an_idle_process_holds_no_segment_that_was_deleted(tmp_path: Path) -> None:
    """It has written to the first one, and follows the log although it puts no more.

    Without dispatchers: one that comes late maps the segment again.
    """
    given: dict[str, Any] = {"dispatchers": []}
    with open_small(tmp_path, **given) as owner, open_small(tmp_path, **given) as attached:
        owner.put(Message("t", bytes(100), queue_id=0))
        attached.put(Message("t", bytes(100), queue_id=0))
        for _ in range(3 * SEGMENT // 1000):
            attached.put(Message("t", bytes(1000), queue_id=0))
        attached.flush()
        until(lambda: not open_in(tmp_path / "commitlog" / segment_name(0)))
        owner.put(Message("t", b"last", queue_id=0))
        assert len(bodies(owner.scan())) == 3 + 3 * SEGMENT // 1000


# --- what each can do --------------------------------------------------------------------------


def test_every_way_to_put(tmp_path: Path) -> None:
    with open_small(tmp_path), open_small(tmp_path) as store:
        results = [store.put(Message("t", b"0", queue_id=0))]
        results += store.put_batch([Message("t", b"1", queue_id=0), Message("u", b"2")])
        results += store.put_columns("t", [b"3", b"4"], queue_ids=0)
        results.append(store.put_async(Message("t", b"5", queue_id=0)).result(10))
        results += store.put_batch_async([Message("t", b"6", queue_id=0)] * 2).result(10)
        ends = [each.end_offset for each in results]
        assert [each.physical_offset for each in results] == [0, *ends[:-1]]
        assert store.flush() == ends[-1] == store.flushed_offset
        assert bodies(store.scan()) == [b"%d" % at for at in (0, 1, 2, 3, 4, 5, 6, 6)]
        assert store.wait_dispatched(ends[-1], 5_000)


@pytest.mark.parametrize(
    "what",
    [
        lambda store: store.delete_topic("t"),
        lambda store: store.delete_unused_topics(),
        lambda store: store.resume_dispatch(),
        lambda store: store.delete_expired(),
    ],
)
def test_who_only_reads_deletes_nothing(tmp_path: Path, what: Callable[[Store], object]) -> None:
    with open_small(tmp_path) as owner:
        owner.put(Message("t", b"x"))
        with read_small(tmp_path) as reader, pytest.raises(StoreReadOnly, match="for reading"):
            what(reader)


def test_a_reader_flushes_nothing(tmp_path: Path) -> None:
    a_store(tmp_path, 1)
    with read_small(tmp_path) as store:
        with pytest.raises(StoreReadOnly, match="owner"):
            store.flush()
        with pytest.raises(PutRefused, match="mode='write'"):
            store.put_batch_async([Message("t", b"x")])


def test_an_attached_store_outlives_its_owner(tmp_path: Path) -> None:
    owner = open_small(tmp_path)
    with open_small(tmp_path) as attached:
        attached.put(Message("t", b"x", queue_id=0))
        owner.close()
        assert (tmp_path / "abort").exists()
        attached.put(Message("t", b"y", queue_id=0))
        assert bodies(attached.scan()) == [b"x", b"y"]
        assert attached.role == "attach"
        assert is_owned(FILES, tmp_path)
    assert not is_owned(FILES, tmp_path)
    with open_small(tmp_path) as store:
        assert store.recovery is not None
        assert store.recovery.clean
        assert [bytes(each.body) for each in store.read("t", 0)] == [b"x", b"y"]


# --- owners that cannot be attached to ---------------------------------------------------------


@contextmanager
def a_rocketmq(path: Path) -> Iterator[None]:
    """Its lock on byte 0, and nothing else that is lakelog's."""
    with (path / "lock").open("r+b") as file:
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        fcntl.fcntl(file.fileno(), fcntl.F_OFD_SETLK, lock)
        yield


@pytest.mark.parametrize("mode", ["write", "exclusive"])
def test_a_living_rocketmq_cannot_be_attached_to(tmp_path: Path, mode: str) -> None:
    a_store(tmp_path, 3)
    with a_rocketmq(tmp_path):
        match = "RocketMQ.*mode='read'"
        with pytest.raises(StoreLocked, match=match):
            open_small(tmp_path, mode=mode)
        with read_small(tmp_path) as store:
            assert len(bodies(store.scan())) == 3


ALONE: Final[list[tuple[dict[str, Any], str]]] = [
    ({"attach": {"listen": False}}, r"attach\.listen = false"),
    ({"writer": "staged"}, "the writer 'staged' keeps bytes in memory"),
    ({"writer": "direct"}, "the writer 'direct' keeps bytes in memory"),
]


@pytest.mark.disk
@pytest.mark.parametrize(("alone", "why"), ALONE)
def test_a_store_that_lets_nobody_in(tmp_path: Path, alone: dict[str, Any], why: str) -> None:
    """As the settings say, or since bytes are in its memory that no other process sees."""
    with open_small(tmp_path, plugins=None, **alone) as owner:
        owner.put(Message("t", b"x"))
        who = f"process {os.getpid()} .*has this store open and lets nobody in: {why}"
        for mode in ("write", "exclusive"):
            with pytest.raises(StoreLocked, match=who):
                open_small(tmp_path, mode=mode)


@pytest.mark.disk
@pytest.mark.parametrize(("alone", "why"), ALONE)
def test_who_lets_nobody_in_does_not_join(tmp_path: Path, alone: dict[str, Any], why: str) -> None:
    with open_small(tmp_path, plugins=None) as owner:
        with pytest.raises(StoreLocked, match=f"process {os.getpid()} .*open, and {why}"):
            open_small(tmp_path, plugins=None, **alone)
        owner.put(Message("t", b"x"))


def test_a_dead_owners_lock_is_none(tmp_path: Path) -> None:
    with a_worker(tmp_path) as first:
        first.hear()
        first.ask("put", "a", 3)
        first.kill()
        with open_small(tmp_path) as store:
            assert store.role == "owner"
            assert store.recovery is not None
            assert not store.recovery.clean
            assert len(bodies(store.scan())) == 3


# --- settings beside the owner's ---------------------------------------------------------------


def test_the_owners_settings_are_in_force(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_small(tmp_path, record_crc=True, queues_per_topic=7):
        given: dict[str, Any] = {"plugins": [], "queues_per_topic": 3}
        with caplog.at_level(logging.WARNING, "lakelog"), lakelog.open(tmp_path, **given) as store:
            core = store.settings.core
            assert (core.segment_size_bytes, core.record_crc) == (SEGMENT, True)
            assert core.queues_per_topic == 7
            assert store.settings.origins["record_crc"] == "the store's processes"
        assert "use other settings: queues_per_topic = 3 (theirs: 7)" in caplog.text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("segment_size_bytes", 2 * SEGMENT),
        ("flush", "inline"),
        ("record_crc", True),
        ("append", "compress"),
        ("commitlog_path", "elsewhere"),
    ],
)
def test_what_would_be_promised_and_not_kept_is_refused(
    tmp_path: Path, key: str, value: object
) -> None:
    with open_small(tmp_path) as owner:
        with pytest.raises(SettingsError, match=f"{key}.*use "):
            open_small(tmp_path, **{key: value})
        owner.put(Message("t", b"the owner does not mind"))


def test_to_ask_for_less_is_no_harm(tmp_path: Path) -> None:
    with open_small(tmp_path, flush="inline"), open_small(tmp_path, flush="none") as store:
        assert store.put(Message("t", b"x")).end_offset == store.flushed_offset


# --- a disk that is too full stops puts in every process, while somebody watches it ---


WATCHED = {"disk_watcher": "mine-too", "cleaner": None}
FULL = "0.91 of /data is used"


def test_puts_of_all_processes_see_a_full_disk(tmp_path: Path) -> None:
    plugin = MaintenancePlugin()
    with plugin.open(tmp_path, **WATCHED) as store, a_worker(tmp_path, "write", **NEVER) as other:
        assert other.hear() == {"role": "attach"}
        assert other.ask("put", "a", 1)["offsets"] == [0]
        for _ in range(2):
            plugin.watcher.state, plugin.watcher.reason = DiskState.STOP_WRITING, FULL
            store.disk()
            with pytest.raises(PutRefused, match=f"too full .*{FULL}") as caught:
                store.put(Message("t", b"here"))
            assert other.ask("put", "b", 1) == {"error": "PutRefused", "text": str(caught.value)}
            later = "store.put_async(lakelog.Message('t', b'later')).result(10)"
            assert other.ask(later) == {"error": "PutRefused", "text": str(caught.value)}
            assert other.ask("store.is_writable") == {"is_": False}
            with a_worker(tmp_path, "write", **NEVER) as newcomer:
                newcomer.hear()
                assert newcomer.ask("put", "c", 1)["text"] == str(caught.value)
            plugin.watcher.state = DiskState.OK
            store.disk()
            assert other.ask("store.is_writable") == {"is_": True}
            assert len(other.ask("put", "d", 1)["offsets"]) == 1
        assert len(list(store.scan())) == 3


@pytest.mark.parametrize("ended", ["closed", "killed"])
def test_a_pause_ends_with_the_process_that_said_it(tmp_path: Path, ended: str) -> None:
    """Nobody watches the disk, or another process without a watcher: its word is out of date."""
    with a_worker(tmp_path, SERVE) as owner:
        owner.hear()
        with open_small(tmp_path, **NEVER) as store:
            owner.ask(f"store._current.parts.owned.page.set_pause({FULL!r})")
            with pytest.raises(PutRefused, match=FULL):
                store.put(Message("t", b"refused"))
            owner.kill() if ended == "killed" else owner.ask("close")
            store.put(Message("t", b"taken", queue_id=0))
            with a_worker(tmp_path, SERVE) as next_one:
                assert next_one.hear() == {"role": "owner"}
                assert store.put(Message("t", b"taken", queue_id=0)).queue_offset == 1
                assert store.is_writable
