"""Queues and index that a process of its own builds are as complete as a thread's."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import lakelog
from core.tests.registry.samples import plugin
from core.tests.services import picky
from core.tests.services.support import (
    damage,
    eventually,
    is_alive,
    open_away,
    pid_of,
    remote,
)
from core.tests.store.support import FaultyFiles, bodies, fill, open_small, read_small, refused
from lakelog import Message
from lakelog.errors import DispatchStopped, SettingsError, StoreFailed, StoreLocked
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.shared.dispatch_lock import DispatchLock
from lakelog.files.shared.ownership import is_followed
from lakelog.files.state.checkpoint import read_checkpoint
from lakelog.hookspecs import hookimpl
from lakelog.housekeeping.following import Following
from lakelog.interfaces import Factory, Kind, NoSettings
from lakelog.services import supervisor
from lakelog.services.order import Order
from lakelog.services.process import Process
from lakelog_testing.signals import hold

FILES = RealFileSystem()


def test_the_owner_reads_what_another_process_dispatches(tmp_path: Path) -> None:
    with open_away(tmp_path) as store, read_small(tmp_path) as reader:
        child = pid_of(store)
        assert child != os.getpid()
        results = fill(store, 300)
        assert store.wait_dispatched(results[-1].end_offset)
        assert store.dispatched_offset == results[-1].end_offset
        assert store.dispatch_lag.bytes == 0
        for each in (store, reader):
            assert each.topics() == ["t"]
            found = each.get("t", 0, 0, 1000).messages
            assert [int(one.body[:6]) for one in found] == list(range(300))
    assert not is_alive(child)
    assert damage(tmp_path, index=False) == []
    assert read_checkpoint(FILES, tmp_path).logics_timestamp_ms == results[-1].store_timestamp_ms
    with open_small(tmp_path) as store:
        assert store.recovery is not None
        assert store.recovery.clean
        assert store.recovery.dispatched_from == results[-1].end_offset
        assert store.get("t", 0, 299, 1).messages


def test_what_was_put_just_before_the_close_is_in_the_queues(tmp_path: Path) -> None:
    with open_away(tmp_path) as store:
        last = fill(store, 100)[-1]
    assert_complete(tmp_path, last.end_offset)


def test_a_close_while_the_process_is_started_leaves_the_queues_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told to stop before it has looked at anything."""
    start = Process.start

    def late(order: Order) -> Process:
        process = start(order)
        hold(process.pid)
        closing.wait(20)
        time.sleep(0.1)  # for the close to wait
        os.kill(process.pid, signal.SIGCONT)
        return process

    closing = threading.Event()
    monkeypatch.setattr(Process, "start", late)
    with open_away(tmp_path) as store:
        last = fill(store, 100)[-1]
        closing.set()
    assert_complete(tmp_path, last.end_offset)


def test_a_process_that_somebody_else_stops_leaves_the_rest_to_the_close(tmp_path: Path) -> None:
    with open_away(tmp_path) as store:
        fill(store, 10)
        assert store.wait_dispatched()
        hold(child := pid_of(store))
        last = fill(store, 100)[-1]
        os.kill(child, signal.SIGTERM)
        threading.Timer(0.1, os.kill, (child, signal.SIGCONT)).start()
    assert_complete(tmp_path, last.end_offset)


def assert_complete(path: Path, end_offset: int) -> None:
    """The stop was clean, the files say all, and a reopen has nothing to dispatch."""
    assert damage(path, index=False) == []
    with open_small(path) as store:
        assert store.recovery is not None
        assert store.recovery.clean
        assert store.recovery.dispatched_from == end_offset


def test_a_topic_is_removed_between_two_processes(tmp_path: Path) -> None:
    with open_away(tmp_path) as store, read_small(tmp_path) as reader:
        fill(store, 50)
        store.put(Message("other", b"stays", queue_id=0))
        assert store.wait_dispatched()
        assert store.topics() == reader.topics() == ["other", "t"]
        first = pid_of(store)
        store.delete_topic("t")
        assert store.topics() == ["other"]
        assert pid_of(store, but=first) != first
        assert store.put(Message("t", b"new", queue_id=0)).queue_offset == 50
        assert store.wait_dispatched()
        assert bodies(store.get("t", 0, 50, 9).messages) == [b"new"]
        with read_small(tmp_path) as fresh:
            assert bodies(fresh.get("t", 0, 50, 9).messages) == [b"new"]
            assert fresh.queues("t")[0].min_offset == 50
    assert damage(tmp_path, index=False) == []


def test_cleaning_stops_the_process_only_when_the_log_began_elsewhere(tmp_path: Path) -> None:
    few = {"consume-queue": {"file_entries": 16}}
    with open_away(tmp_path, **few) as store:
        fill(store, 300)
        assert store.wait_dispatched()
        first = pid_of(store)
        owned = store._owned
        assert owned is not None
        following = Following(owned.reput, owned.positions, None, owned.positions.minimum)
        assert following.follow() == (0, ())
        assert pid_of(store) == first
        starts = owned.segments.starts()
        owned.positions.minimum = starts[len(starts) // 2]
        removed, _ = following.follow()
        assert removed
        assert pid_of(store, but=first) != first
        fill(store, 10)
        assert store.wait_dispatched()
        info = store.queues("t")[0]
        assert info.min_offset > 0
        assert info.max_offset == 310


def test_a_dispatcher_that_fails_there_is_told_of_here(tmp_path: Path) -> None:
    order = {"plugins": [picky], "dispatchers": ("consume-queue", "picky")}
    with open_away(tmp_path, **order) as store:
        fill(store, 3)
        assert store.wait_dispatched()
        (tmp_path / "fail").write_text(str(errno.ENOSPC))
        at = store.put(Message("t", b"000003", queue_id=0))
        with pytest.raises(DispatchStopped, match="picky") as caught:
            store.wait_dispatched()
        assert (caught.value.dispatcher, caught.value.offset) == ("picky", at.physical_offset)
        assert isinstance(caught.value.__cause__, OSError)
        assert caught.value.__cause__.errno == errno.ENOSPC
        assert store.put(Message("t", b"000004", queue_id=0)).queue_offset == 4
        with pytest.raises(DispatchStopped):
            store.resume_dispatch()
        (tmp_path / "fail").unlink()
        store.resume_dispatch()
        assert store.dispatch_failure is None
        assert store.wait_dispatched()
        seen = (tmp_path / "seen").read_text().split()
        assert sorted(set(seen)) == [f"00000{n}" for n in range(5)]


def test_after_a_sync_that_failed_there_the_stop_is_no_clean_one(tmp_path: Path) -> None:
    """What was not durable then counts as durable never again, not by starting the process anew."""
    order = {"plugins": [picky], "dispatchers": ("consume-queue", "picky")}
    store = open_away(tmp_path, **order)
    fill(store, 3)
    assert store.wait_dispatched()
    (tmp_path / "freeze").touch()
    fill(store, 1)
    eventually(lambda: store.dispatch_failure is not None)
    (tmp_path / "freeze").unlink()
    before = read_checkpoint(FILES, tmp_path)
    with pytest.raises(DispatchStopped, match="a sync failed"):
        store.resume_dispatch()
    assert fill(store, 1)
    with pytest.raises(StoreFailed, match="a sync of queues or index failed"):
        store.close()
    assert (tmp_path / "abort").exists()
    assert read_checkpoint(FILES, tmp_path) == before
    with open_small(tmp_path, **order) as store:
        assert store.recovery is not None
        assert not store.recovery.clean
        assert store.queues("t")[0].max_offset == 5


def test_a_recovery_needs_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_away(tmp_path / "store") as store:
        fill(store, 10)
        shutil.copytree(tmp_path / "store", tmp_path / "copy")
    monkeypatch.setattr("lakelog.services.process.Process.start", None)
    report = lakelog.recover(tmp_path / "copy", plugins=[], services={"dispatch": "process"})
    assert not report.clean
    assert damage(tmp_path / "copy", index=False) == []


def test_who_opens_in_a_thread_that_ends_keeps_the_process(tmp_path: Path) -> None:
    """The system kills it when the thread ends that started it."""
    opened = []
    opening = threading.Thread(target=lambda: opened.append(open_away(tmp_path)))
    opening.start()
    opening.join()
    with opened[0] as store:
        fill(store, 1)
        assert store.wait_dispatched()
        child = pid_of(store)
        time.sleep(0.3)
        fill(store, 1)
        assert store.wait_dispatched()
        assert pid_of(store) == child


def test_a_forked_child_lets_go_of_what_would_keep_it_alive(tmp_path: Path) -> None:
    with open_away(tmp_path) as store:
        fill(store, 1)
        assert store.wait_dispatched()
        process = remote(store)._supervisor.process
        assert process is not None
        end = process.channel.fileno()
        forked = os.fork()
        if not forked:
            os._exit(_is_open(end))
        assert os.waitpid(forked, 0)[1] == 0
        assert _is_open(end)


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


# --- what cannot be ---


def test_plugins_that_are_objects_are_refused_before_anything_is_touched(tmp_path: Path) -> None:
    def offer() -> list[Factory]:
        return [Factory(Kind.DISPATCHER, "picky", NoSettings, picky._make)]

    given = plugin(lakelog_dispatchers=hookimpl(offer))
    with refused(tmp_path / "store", SettingsError, "services.dispatch", "object"):
        open_away(tmp_path / "store", plugins=[given], dispatchers=("picky",))
    with open_small(tmp_path / "store", plugins=[given], dispatchers=("picky",)) as store:
        fill(store, 1)


def test_files_that_are_not_the_systems_are_refused(tmp_path: Path) -> None:
    with refused(tmp_path / "store", SettingsError, "services.dispatch", "stand in"):
        open_away(tmp_path / "store", files=FaultyFiles())


def test_a_next_owner_waits_for_who_writes_queues_and_then_says_who(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path) as store:
        fill(store, 10)
    held = DispatchLock.take(FILES, tmp_path)
    with pytest.raises(StoreLocked, match=f"process {os.getpid()} still writes") as caught:
        DispatchLock.take(FILES, tmp_path, 0.05)
    assert caught.value.owner_pid == os.getpid()
    monkeypatch.setattr(
        "lakelog.files.shared.dispatch_lock.DispatchLock.take", _soon_released(held)
    )
    with open_small(tmp_path) as store:
        assert store.get("t", 0, 9, 1).messages


def _soon_released(held: DispatchLock) -> object:
    real = DispatchLock.take

    def take(*given: Any) -> DispatchLock:
        threading.Timer(0.2, held.release).start()
        begun = time.monotonic()
        lock = real(*given)
        assert time.monotonic() - begun > 0.1
        return lock

    return take


# --- processes that die ---


def test_a_process_that_is_killed_is_started_again_and_no_put_notices(tmp_path: Path) -> None:
    with open_away(tmp_path) as store:
        fill(store, 100)
        for _ in range(2):
            child = pid_of(store)
            os.kill(child, signal.SIGKILL)
            fill(store, 100)
            assert pid_of(store, but=child) != child
        assert store.wait_dispatched()
        assert store.queues("t")[0].max_offset == 300
        eventually(lambda: remote(store)._supervisor.deaths == 0)
    assert damage(tmp_path, index=False) == []


def test_a_process_that_hangs_is_killed_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "HANG_SECONDS", 2.0)
    with open_away(tmp_path) as store:
        fill(store, 10)
        assert store.wait_dispatched()
        child = pid_of(store)
        hold(child)
        fill(store, 100)
        assert store.wait_dispatched(timeout_ms=20_000)
        assert not is_alive(child)
    assert damage(tmp_path, index=False) == []


def test_a_close_completes_what_a_process_that_dies_has_left(tmp_path: Path) -> None:
    """A stop that is clean says that queues and index are durable and complete."""
    with open_away(tmp_path) as store:
        fill(store, 10)
        assert store.wait_dispatched()
        hold(child := pid_of(store))
        last = fill(store, 100)[-1]
        os.kill(child, signal.SIGKILL)
    assert_complete(tmp_path, last.end_offset)


def test_readers_are_told_while_nobody_vouches_for_the_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_away(tmp_path) as store:
        fill(store, 10)
        assert store.wait_dispatched()
        assert is_followed(FILES, tmp_path)
        seen, real = [], remote(store).ended

        def ended(process: Process, *, unasked: bool) -> None:
            real(process, unasked=unasked)
            seen.append(is_followed(FILES, tmp_path))

        monkeypatch.setattr(remote(store), "ended", ended)
        os.kill(pid_of(store), signal.SIGKILL)
        eventually(lambda: seen == [False])
        eventually(lambda: is_followed(FILES, tmp_path))


def test_a_process_that_dies_again_and_again_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "MANY_DEATHS", 2)
    monkeypatch.setattr("lakelog.services.remote.MANY_DEATHS", 2)
    with open_away(tmp_path) as store:
        fill(store, 10)
        assert store.wait_dispatched()
        (tmp_path / "lakelog" / "tombstones.json").write_bytes(b"no JSON")
        os.kill(pid_of(store), signal.SIGKILL)
        fill(store, 1)
        eventually(lambda: store.dispatch_failure is not None)
        assert "times in a row" in str(store.dispatch_failure)
        assert "tombstones.json" in str(store.dispatch_failure)
        with pytest.raises(DispatchStopped):
            store.wait_dispatched()
        (tmp_path / "lakelog" / "tombstones.json").unlink()
        eventually(lambda: store.dispatch_failure is None)
        assert store.wait_dispatched()
    assert damage(tmp_path, index=False) == []
