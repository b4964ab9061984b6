"""Roles of a store: who owns, who attaches, who reads, and what each is refused."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import signal
import struct
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
from core.tests.maintenance.support import MaintenancePlugin
from core.tests.store.support import NEVER, SEGMENT, a_store, bodies, open_small, read_small
from core.tests.store.workers import SERVE, a_worker, an_owner
from lakelog import Message, PutRefused
from lakelog.dispatch import DispatchCursor
from lakelog.errors import SettingsError, StoreError, StoreLocked, StoreReadOnly
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.layout import ABORT_FILE, LOCK_CONTENT, OWN_DIR, segment_name
from lakelog.format.record_batch import Piece
from lakelog.hooks import DiskState
from lakelog.processes.membership import Membership
from lakelog.processes.ownership import is_owned, is_published, is_served
from lakelog.processes.queue_table import FIRST_SLOTS, table_path
from lakelog_doctor.recover import recover
from lakelog_testing.contracts.writer import open_in
from tests.support.waiting import until

FILES = RealFileSystem()


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


@pytest.mark.both_ways
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


@pytest.mark.both_ways
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


@pytest.mark.both_ways
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


@pytest.mark.both_ways
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


def test_who_only_reads_deletes_nothing(tmp_path: Path) -> None:
    with open_small(tmp_path) as owner, read_small(tmp_path) as reader:
        owner.put(Message("t", b"x"))
        for what in (
            lambda: reader.delete_topic("t"),
            reader.delete_unused_topics,
            reader.resume_dispatch,
            reader.delete_expired,
        ):
            with pytest.raises(StoreReadOnly, match="for reading"):
                what()


@contextmanager
def a_rocketmq(path: Path) -> Iterator[None]:
    """Its lock on byte 0, and nothing else that is lakelog's."""
    with (path / "lock").open("r+b") as file:
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        fcntl.fcntl(file.fileno(), fcntl.F_OFD_SETLK, lock)
        yield


def test_a_living_rocketmq_cannot_be_attached_to(tmp_path: Path) -> None:
    a_store(tmp_path, 3)
    with a_rocketmq(tmp_path):
        for mode in ("write", "exclusive"):
            with pytest.raises(StoreLocked, match=r"RocketMQ.*mode='read'"):
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
def test_who_lets_nobody_in(tmp_path: Path, alone: dict[str, Any], why: str) -> None:
    """As the settings say, or since bytes are in its memory that no other process sees."""
    with open_small(tmp_path, plugins=None, **alone) as owner:
        owner.put(Message("t", b"x"))
        who = f"process {os.getpid()} .*has this store open and lets nobody in: {why}"
        for mode in ("write", "exclusive"):
            with pytest.raises(StoreLocked, match=who):
                open_small(tmp_path, mode=mode)
    with open_small(tmp_path, plugins=None) as owner:
        with pytest.raises(StoreLocked, match=f"process {os.getpid()} .*open, and {why}"):
            open_small(tmp_path, plugins=None, **alone)
        owner.put(Message("t", b"x"))


def test_the_owners_settings_are_in_force(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_small(tmp_path, record_crc=True, queues_per_topic=7):
        given: dict[str, Any] = {"plugins": [], "queues_per_topic": 3}
        with caplog.at_level(logging.WARNING, "lakelog"), lakelog.open(tmp_path, **given) as store:
            core = store.settings.core
            assert (core.segment_size_bytes, core.record_crc) == (SEGMENT, True)
            assert core.queues_per_topic == 7
            assert store.settings.origins["record_crc"] == "the store's processes"
        assert "use other settings: queues_per_topic = 3 (theirs: 7)" in caplog.text


def test_what_would_be_promised_and_not_kept_is_refused(tmp_path: Path) -> None:
    with open_small(tmp_path) as owner:
        for given in (
            {"segment_size_bytes": 2 * SEGMENT},
            {"flush": "inline"},
            {"record_crc": True},
            {"append": "compress"},
            {"commitlog_path": "elsewhere"},
        ):
            with pytest.raises(SettingsError, match=f"{next(iter(given))}.*use "):
                open_small(tmp_path, **given)
        owner.put(Message("t", b"the owner does not mind"))


@pytest.mark.both_ways
def test_to_ask_for_less_is_no_harm(tmp_path: Path) -> None:
    with open_small(tmp_path, flush="inline"), open_small(tmp_path, flush="none") as store:
        assert store.put(Message("t", b"x")).end_offset == store.flushed_offset


WATCHED = {"disk_watcher": "mine-too", "cleaner": None}
FULL = "0.91 of /data is used"


@pytest.mark.both_ways
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


@pytest.mark.both_ways
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


@pytest.mark.parametrize("is_made", [False, True])
def test_a_store_goes_on_for_all_without_the_name_of_its_lock_file(
    tmp_path: Path, *, is_made: bool
) -> None:
    """As a cleaner of temporary files removes it; RocketMQ may have made another one."""
    with an_owner(tmp_path) as first:
        assert first.ask("put", "a", 1)["offsets"] == [0]
        (tmp_path / "lock").unlink()
        if is_made:
            (tmp_path / "lock").touch()
        assert is_owned(FILES, tmp_path)
        assert is_published(FILES, tmp_path)
        assert is_served(FILES, tmp_path)
        with pytest.raises(StoreLocked, match=f"process {first.process.pid} .*mode='exclusive'"):
            open_small(tmp_path, mode="exclusive")
        with pytest.raises(StoreLocked, match=f"process {first.process.pid} .*stop it first"):
            recover(tmp_path, plugins=[])
        with a_worker(tmp_path) as second, open_small(tmp_path, **NEVER) as store:
            assert second.hear() == {"role": "attach"}
            assert second.ask("put", "b", 1)["offsets"] == [95]
            first.kill()
            assert store.put(Message("t", b"c 0")).end_offset == 285
            until(lambda: second.ask("store.role")["is_"] == "owner")
            second.kill()
            with a_worker(tmp_path) as third:
                assert third.hear() == {"role": "attach"}
                assert third.ask("put", "d", 1)["offsets"] == [285]
                third.kill()
            assert (tmp_path / "lock").exists() == is_made
        assert bodies_of(tmp_path) == ["a 0", "b 0", "c 0", "d 0"]
    assert not is_owned(FILES, tmp_path)
    with open_small(tmp_path) as store:
        assert (tmp_path / "lock").read_bytes() == LOCK_CONTENT
        assert store.role == "owner"
        assert store.recovery is not None
        assert store.recovery.clean
        assert len(bodies(store.scan())) == 4


@pytest.mark.sample(1)
@pytest.mark.parametrize("round_", range(20))
def test_all_that_open_at_once_without_a_lock_file_have_one_store(
    tmp_path: Path, round_: int
) -> None:
    """While the only member closes the store, dies, or stays; the name is removed again."""
    with ExitStack() as stack:
        first = stack.enter_context(an_owner(tmp_path))
        first.ask("put", "a", 1)
        (tmp_path / "lock").unlink()
        others = [stack.enter_context(a_worker(tmp_path)) for _ in range(3)]
        if round_ % 3 == 1:
            first.say("close")
        elif round_ % 3 == 2:
            first.kill()
        roles = [each.hear()["role"] for each in others]
        assert roles.count("owner") <= (round_ % 3 > 0)
        offsets = [each.ask("put", "b", 1)["offsets"][0] for each in others]
        assert sorted(offsets) == [95, 190, 285]
        for number, each in enumerate(others):
            each.kill() if number % 2 else each.ask("close")
    assert len(bodies_of(tmp_path)) == 4


def test_a_lock_file_that_cannot_be_opened_again_lets_nobody_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of another user's process, or with ``/proc`` hidden."""

    def refuse(_self: RealFileSystem, path: Path, _link: str, *, write: bool = False) -> None:
        raise PermissionError(errno.EACCES, f"no, write={write}", str(path))

    with an_owner(tmp_path) as first:
        (tmp_path / "lock").unlink()
        monkeypatch.setattr(RealFileSystem, "open_again", refuse)
        pid = first.process.pid
        match = f"process {pid} .* but the file lock was removed, .* through /proc: .*; close it"
        for mode in ("write", "exclusive"):
            with pytest.raises(StoreLocked, match=match):
                open_small(tmp_path, mode=mode)
        assert is_owned(FILES, tmp_path)
        assert first.ask("put", "a", 1)["offsets"] == [0]


def test_the_last_process_closes_a_store_without_the_name_of_its_lock_file(tmp_path: Path) -> None:
    with open_small(tmp_path) as first, open_small(tmp_path) as second:
        second.put(Message("t", b"x"))
        (tmp_path / "lock").unlink()
        first.close()
        with open_small(tmp_path) as third:
            assert third.put(Message("t", b"y")).queue_offset == 1
        second.put(Message("t", b"z"))
    with open_small(tmp_path) as store:
        assert store.recovery is not None
        assert store.recovery.clean
        assert bodies(store.scan()) == [b"x", b"y", b"z"]


def test_a_directory_that_cannot_be_locked_is_no_reason_to_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS refuses it on what is not open for writing."""

    def refuse(_fd: int, _kind: int) -> None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with open_small(tmp_path) as store, open_small(tmp_path) as other:
        other.put(Message("t", b"x"))
        assert store.role == "owner"


def test_a_forked_child_unlocks_nothing(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        store.put(Message("t", b"x"))
        child = os.fork()
        if child == 0:
            store.close()
            os._exit(0)
        os.waitpid(child, 0)
        (tmp_path / "lock").unlink()
        with pytest.raises(StoreLocked, match=f"process {os.getpid()} .*mode='exclusive'"):
            open_small(tmp_path, mode="exclusive")


def test_an_interrupted_open_that_another_process_has_joined_undoes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its undoing removed ``abort`` and the shared page of the other one."""
    let_in, others = Membership.let_in, []

    def interrupted(lock: Membership, *, share: bool = True) -> None:
        let_in(lock, share=share)
        monkeypatch.undo()
        others.append(open_small(tmp_path, attach={"take_over": False}))
        others[0].put(Message("t", b"x"))
        raise KeyboardInterrupt

    monkeypatch.setattr(Membership, "let_in", interrupted)
    with pytest.raises(KeyboardInterrupt):
        open_small(tmp_path)
    assert (tmp_path / ABORT_FILE).exists()
    others[0].put(Message("t", b"y"))
    with open_small(tmp_path) as third:
        assert bodies(third.scan()) == [b"x", b"y"]
    others[0].close()
    assert not (tmp_path / ABORT_FILE).exists()


@pytest.mark.parametrize("ended", ["closed", "killed"])
def test_whatever_small_file_a_cleaner_removes_nothing_is_lost(tmp_path: Path, ended: str) -> None:
    """All files but the log, while two processes have the store open."""
    with an_owner(tmp_path) as first, open_small(tmp_path, attach={"take_over": False}) as store:
        first.ask("put", "a", 1)
        store.put(Message("t", b"b 0"))
        for each in [*tmp_path.iterdir(), *(tmp_path / OWN_DIR).iterdir()]:
            if each.is_file():
                each.unlink()
        assert first.ask("put", "a", 1)["offsets"]
        if ended == "killed":
            first.kill()
        else:
            first.ask("close")
        with pytest.raises(StoreError, match=r"shared: the page .* is gone.*; close the store"):
            open_small(tmp_path)
        store.put(Message("t", b"b 1"))
        assert len(bodies(store.scan())) == 4
    assert not (tmp_path / ABORT_FILE).exists()
    with open_small(tmp_path) as again:
        assert len(bodies(again.scan())) == 4


@pytest.mark.parametrize("name", ["shared", "queues.1"])
def test_who_misses_a_removed_file_of_the_processes_says_so(tmp_path: Path, name: str) -> None:
    with open_small(tmp_path) as store:
        (tmp_path / OWN_DIR / name).unlink()
        with pytest.raises(StoreError, match=f"{name}: .*gone.*; close the store in all of them"):
            open_small(tmp_path)
        store.put(Message("t", b"x"))


def test_a_close_ends_a_take_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of the log is dispatched by the next process with the services."""
    run, runs = DispatchCursor.run, list[int]()
    beside = {"take_over": False}
    with an_owner(tmp_path) as first, open_small(tmp_path, attach=beside) as third:
        second = open_small(tmp_path)
        joined = second._current.last().joined
        assert joined is not None

        def run_late(cursor: DispatchCursor, pieces: Iterable[Piece]) -> None:
            runs.append(cursor.offset)
            until(lambda: joined._is_closing)
            run(cursor, pieces)

        os.kill(first.process.pid, signal.SIGSTOP)
        for _ in range(3 * SEGMENT // 1000):
            third.put(Message("t", bytes(1000), queue_id=0))
        monkeypatch.setattr(DispatchCursor, "run", run_late)
        first.kill()
        until(lambda: runs)
        with ThreadPoolExecutor(1) as thread:
            thread.submit(second.close).result()
        assert len(runs) == 1
        monkeypatch.undo()
        with open_small(tmp_path) as fourth:
            until(lambda: fourth.wait_dispatched(0))
            assert len(bodies(fourth.scan())) == 3 * SEGMENT // 1000
