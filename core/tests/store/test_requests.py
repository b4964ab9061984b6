"""Calls that the process with the services executes for others, and the files that ask for them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from core.tests.maintenance.support import FEW, Keeping, MaintenancePlugin
from core.tests.processes.dying import die
from core.tests.store.support import NEVER, SEGMENT, fill, open_small, read_small
from core.tests.store.workers import SERVE, Worker, a_worker
from lakelog import Message
from lakelog.errors import (
    DispatchStopped,
    NoOwner,
    SettingsError,
    StoreClosed,
    StoreError,
    StoreLocked,
)
from lakelog.files.filesystem import File, RealFileSystem
from lakelog.hooks import CleaningReport, Deletion
from lakelog.store import requests
from lakelog.store.requests import SentRequest, asked, is_asked
from lakelog_testing.crash.opener import owned_by
from lakelog_testing.threads import hold
from tests.support.sampling import at_every, every
from tests.support.waiting import until

FILES = RealFileSystem()
SOON = {"attach": {"reconnect_timeout_ms": 700, "take_over": False}}


def asked_in(path: Path) -> list[Path]:
    return list((path / "lakelog").glob("request.*"))


@contextmanager
def attached(path: Path, **settings: Any) -> Iterator[Worker]:
    with a_worker(path, "write", **NEVER, **settings) as worker:
        assert worker.hear() == {"role": "attach"}
        yield worker


@contextmanager
def serving(path: Path) -> Iterator[Worker]:
    """A process with the services, and a topic of two messages."""
    with a_worker(path, SERVE) as owner:
        owner.hear()
        owner.ask("put", "a", 2)
        assert owner.ask("store.wait_dispatched()") == {"is_": True}
        yield owner


# --- each verb ---


def test_a_topic_is_deleted_for_all(tmp_path: Path) -> None:
    with open_small(tmp_path) as owner, attached(tmp_path) as asker, attached(tmp_path) as other:
        for name, worker in (("a", asker), ("b", other)):
            worker.ask("put", name, 3)
        owner.put(Message("kept", b"x", queue_id=0))
        assert owner.wait_dispatched()
        assert asker.ask("store.delete_topic('t')") == {"is_": None}
        for worker in (asker, other):
            assert worker.ask("store.topics()") == {"is_": ["kept"]}
        assert owner.topics() == ["kept"]
        said = asker.ask("store.delete_topic('t')")
        assert (said["error"], "no queue of topic 't'" in said["text"]) == ("WrongValue", True)
        assert owner.put(Message("t", b"new", queue_id=0)).queue_offset == 6
        found = "store.wait_dispatched() and [str(m.body, 'ascii') for m in store.read('t', 0)]"
        for worker in (asker, other):
            assert worker.ask(found) == {"is_": ["new"]}
        assert asker.ask("put", "a", 1)["offsets"]
        assert owner.wait_dispatched()
        assert len(owner.get("t", 0, 0).messages) == 0
        assert [bytes(each.body) for each in owner.read("t", 0)] == [b"new", b"a 0"]
    assert asked_in(tmp_path) == []
    with open_small(tmp_path) as again:
        assert [each.queue_offset for each in again.read("t", 0)] == [6, 7]


def test_what_is_put_meanwhile_is_there_once_or_deleted(tmp_path: Path) -> None:
    """After each answer, no earlier message is in a queue, and no later one is missing."""
    with ExitStack() as opened:
        owner = opened.enter_context(open_small(tmp_path))
        asker = opened.enter_context(open_small(tmp_path, **NEVER))
        producer = opened.enter_context(attached(tmp_path))
        for _ in range(3):
            asker.put(Message("t", b"before", queue_id=0))
            producer.say("put", "p", 200)
            asker.delete_topic("t")
            first = asker.put(Message("t", b"behind", queue_id=0))
            starts = producer.hear()["offsets"]
            behind = [start for start in starts if start > first.physical_offset]
            for store in (owner, asker):
                assert store.wait_dispatched()
                found = [
                    each for each in store.read("t", 0) if each.queue_offset >= first.queue_offset
                ]
                offsets = [each.physical_offset for each in found]
                assert offsets == [first.physical_offset, *behind]
                seen = [each.queue_offset for each in found]
                assert seen == list(range(first.queue_offset, first.queue_offset + len(seen)))
                assert b"before" not in [bytes(each.body) for each in store.read("t", 0)]


def test_segments_and_topics_of_which_nothing_is_left(tmp_path: Path) -> None:
    plugin = MaintenancePlugin(Keeping(remove_empty_queues=True))
    with plugin.open(tmp_path, **FEW) as owner:
        owner.put(Message("old", b"x", queue_id=0))
        fill(owner, 100)
        assert owner.wait_dispatched()
        with attached(tmp_path) as asker, open_small(tmp_path, **NEVER) as store:
            would = owner.delete_expired(dry_run=True)
            done = store.delete_expired()
            assert isinstance(done, CleaningReport)
            assert (done.deleted, done.dry_run) == (would.deleted, False)
            assert (done.topics, done.other_files > 0) == (("old",), True)
            assert owner.min_offset == store.min_offset == done.min_offset > 0
            assert asker.ask("store.delete_expired().deleted") == {"is_": []}
            assert store.delete_unused_topics() == []


def test_what_another_process_wrote_is_synced_before_it_is_deleted(tmp_path: Path) -> None:
    """Otherwise the next sync does not find the file, and the store fails."""
    puts = "len([store.put(lakelog.Message('t', bytes(400), queue_id=0)) for _ in range({})])"
    with MaintenancePlugin().open(tmp_path, **FEW) as owner, attached(tmp_path) as other:
        other.ask(puts.format(50))
        other.ask("store.flush()")
        other.ask(puts.format(100))
        last = owner.put(Message("t", b"", queue_id=0))
        assert owner.wait_dispatched()
        assert owner.flushed_offset < last.physical_offset - 2 * SEGMENT
        assert owner.delete_expired().min_offset == last.physical_offset // SEGMENT * SEGMENT
        assert owner.flushed_offset >= owner.min_offset
        owner.flush()
        assert owner.put(Message("t", b"", queue_id=0)).queue_offset == 151


def test_one_waits_for_what_another_has_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits without a limit while the serving process lives."""
    looked, waited = list[bool](), threading.Event()

    class Slow(Keeping):
        def choose(self, segments: Any, situation: Any) -> Sequence[Deletion]:
            assert waited.wait(30)
            return ()

    real = requests.is_busy

    def is_busy(*given: Any) -> bool:
        looked.append(real(*given))
        if len(looked) == 2:
            waited.set()
        return looked[-1]

    monkeypatch.setattr(requests, "is_busy", is_busy)
    with ExitStack() as opened:
        owner = opened.enter_context(MaintenancePlugin(Slow()).open(tmp_path))
        one, other = (opened.enter_context(open_small(tmp_path, **SOON)) for _ in range(2))
        owner.put(Message("t", b"x", queue_id=0))
        pool = opened.enter_context(ThreadPoolExecutor())
        first = pool.submit(one.delete_expired)
        until(lambda: real(FILES, tmp_path))
        other.delete_topic("t")
        assert first.result(30).deleted == ()
        assert looked[:2] == [True, True]
        assert owner.topics() == []


def test_what_one_that_closes_has_not_begun_the_next_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as opened:
        owner = opened.enter_context(open_small(tmp_path))
        store = opened.enter_context(open_small(tmp_path, **NEVER))
        owner.put(Message("t", b"x", queue_id=0))
        closing = threading.Event()

        def late(_: requests.Answering) -> None:
            """Find the request only while closing."""
            closing.set()

        with monkeypatch.context() as patched:
            patched.setattr(requests.Answering, "turn", late)
            pool = opened.enter_context(ThreadPoolExecutor())
            asked = pool.submit(store.delete_topic, "t")
            assert closing.wait(30)
            until(lambda: bool(asked_in(tmp_path)))
            owner.close()
        assert not asked.done()
        next_one = opened.enter_context(open_small(tmp_path))
        assert asked.result(30) is None
        assert next_one.topics() == store.topics() == []


# --- errors ---


def test_what_is_refused_there_is_raised_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path) as owner, open_small(tmp_path, **NEVER) as store:
        with pytest.raises(SettingsError, match="no cleaner is set"):
            store.delete_expired()
        owner.put(Message("t", b"x", queue_id=0))
        assert owner.wait_dispatched()
        owned = owned_by(owner)

        def stop(*_: object) -> None:
            raise OSError(28, "No space left on device")

        named = next(iter(owned.dispatchers))
        with monkeypatch.context() as patched:
            patched.setattr(type(named.dispatcher), "dispatch", stop)
            store.put(Message("t", b"y", queue_id=0))
            until(lambda: owned.reput.failure is not None)
            with pytest.raises(DispatchStopped, match="No space left") as caught:
                store.resume_dispatch()
        assert caught.value.dispatcher == named.name
        assert caught.value.offset == owner.dispatched_offset
        store.resume_dispatch()
        assert owner.wait_dispatched()


def test_files_that_are_left_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_small(tmp_path) as owner, open_small(tmp_path, **NEVER) as store:
        owner.put(Message("t", b"x", queue_id=0))
        assert owner.wait_dispatched()
        named = next(iter(owned_by(owner).dispatchers))

        def stop(*_: object) -> None:
            raise OSError(5, "Input/output error", "consumequeue/t")

        with monkeypatch.context() as patched:
            patched.setattr(type(named.dispatcher), "_drop_queues", stop)
            with pytest.raises(StoreError, match="some of its files remain") as caught:
                store.delete_topic("t")
        assert caught.value.path == "consumequeue/t"
        assert store.topics() == []
        store.delete_topic("t")  # as the message advises


def test_what_fails_there_by_chance_is_told(tmp_path: Path) -> None:
    class Broken(Keeping):
        def choose(self, segments: Any, situation: Any) -> Sequence[Deletion]:
            raise KeyError("a fault")

    with ExitStack() as opened:
        opened.enter_context(MaintenancePlugin(Broken()).open(tmp_path))
        store = opened.enter_context(open_small(tmp_path, **NEVER))
        with pytest.raises(StoreError, match=r"process [0-9]+.*KeyError: 'a fault'"):
            store.delete_expired()


def test_nobody_has_the_services_for_long(tmp_path: Path) -> None:
    with serving(tmp_path) as owner, open_small(tmp_path, **SOON) as store:
        owner.kill()
        with pytest.raises(NoOwner, match=r"nothing was changed.*mode='write'"):
            store.delete_topic("t")
        assert asked_in(tmp_path) == []
        with a_worker(tmp_path, SERVE) as another:
            another.hear()
            assert store.topics() == ["t"]
            store.delete_topic("t")
            assert store.topics() == []


def test_who_has_the_services_is_held(tmp_path: Path) -> None:
    with serving(tmp_path) as owner, open_small(tmp_path, **SOON) as store:
        hold(owner.process.pid)
        with pytest.raises(StoreLocked, match=r"nothing was changed.*stopped") as caught:
            store.delete_topic("t")
        assert caught.value.owner_pid == owner.process.pid
        owner.process.send_signal(signal.SIGCONT)
        assert store.topics() == ["t"]
        store.delete_topic("t")


def test_a_store_that_is_closed_waits_no_more(tmp_path: Path) -> None:
    with serving(tmp_path) as owner, ThreadPoolExecutor(1) as pool:
        store = open_small(tmp_path, **NEVER)
        hold(owner.process.pid)
        asked = pool.submit(store.delete_topic, "t")
        until(lambda: bool(asked_in(tmp_path)))
        owner.kill()
        store.close()
        with pytest.raises(StoreClosed, match="the store was closed meanwhile"):
            asked.result(30)
    assert asked_in(tmp_path) == []


# --- deaths ---


@pytest.mark.parametrize("is_next", [False, True])
def test_the_next_one_does_what_a_dead_one_has_begun(tmp_path: Path, is_next: bool) -> None:
    """Killed between tombstone and queues; the next one may be the process that requested it."""
    with serving(tmp_path) as owner:
        dies = (
            "setattr(type(store._current.parts.owned.dispatchers[0].dispatcher), '_drop_queues', "
            "lambda *_: os.kill(os.getpid(), 9))"
        )
        assert owner.ask(dies) == {"is_": None}
        mine, other = ({}, NEVER) if is_next else (NEVER, {})
        with a_worker(tmp_path, "write", **mine) as asker, open_small(tmp_path, **other) as store:
            assert asker.hear() == {"role": "attach"}
            assert asker.ask("store.delete_topic('t')") == {"is_": None}
            assert owner.process.wait(30) == -signal.SIGKILL
            if is_next:
                assert asker.ask("store.role") == {"is_": "owner"}
            assert store.topics() == []
            assert store.put(Message("t", b"new", queue_id=0)).queue_offset == 2
    assert asked_in(tmp_path) == []


def test_what_a_dead_one_asked_for_is_not_done(tmp_path: Path) -> None:
    with serving(tmp_path) as owner:
        with attached(tmp_path) as asker:
            hold(owner.process.pid)
            asker.say("store.delete_topic('t')")
            until(lambda: bool(asked_in(tmp_path)))
            asker.kill()
        owner.process.send_signal(signal.SIGCONT)
        until(lambda: asked_in(tmp_path) == [])
        with read_small(tmp_path) as store:
            assert store.topics() == ["t"]


# --- files of requests, without a store ---

WHAT = {"verb": "delete_topic", "words": ["t"]}


def ask(path: Path, files: RealFileSystem = FILES) -> SentRequest:
    (path / "lakelog").mkdir(exist_ok=True)
    return SentRequest(files, path, WHAT)


def answer_all(path: Path, result: Any) -> list[Any]:
    """Answer all requests; return their contents."""
    found = []
    for each in asked(FILES, path):
        found.append(each.what)
        each.answer({"result": result})
    return found


def test_each_gets_its_answer(tmp_path: Path) -> None:
    one, other = ask(tmp_path), SentRequest(FILES, tmp_path, {"verb": "other"})
    assert is_asked(FILES, tmp_path)
    assert (one.answer(), one.takers()) == (None, 0)
    assert sorted(answer_all(tmp_path, "d\udcff"), key=str) == sorted(
        [WHAT, {"verb": "other"}], key=str
    )
    for each in (one, other):
        assert (each.answer(), each.takers()) == ({"result": "d\udcff"}, 1)
        each.close()
    assert not is_asked(FILES, tmp_path)
    assert answer_all(tmp_path, 0) == []


def test_nothing_is_done_for_who_gave_up(tmp_path: Path) -> None:
    request = ask(tmp_path)
    assert not request.give_up()
    assert answer_all(tmp_path, 0) == []
    request.close()
    request = ask(tmp_path)
    for _ in asked(FILES, tmp_path):
        assert request.give_up()
    request.close()
    assert not is_asked(FILES, tmp_path)


def test_one_that_is_taken_for_a_dead_ones_is_made_anew(tmp_path: Path) -> None:
    """Until its file is locked, it does not differ from the file of a dead client."""
    met: list[Any] = []

    class Met(RealFileSystem):
        def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
            file = super().open(path, write=write, create=create)
            if len(met) < 3:
                met.append(answer_all(tmp_path, 0))
            return file

    request = ask(tmp_path, Met())
    assert met == [[], [], []]
    assert answer_all(tmp_path, 1) == [WHAT]
    assert request.answer() == {"result": 1}
    request.close()


@at_every(13)
def test_what_one_asked_for_that_died_at_any_step_is_not_done(tmp_path: Path, stride: int) -> None:
    for step in every(stride):
        lived = not die(step, requests, lambda: ask(tmp_path))
        assert answer_all(tmp_path, 0) == []
        assert not is_asked(FILES, tmp_path)
        if lived:
            break
    assert step > 50


@at_every(13)
def test_where_one_died_at_any_step_of_an_answer_the_next_one_answers(
    tmp_path: Path, stride: int
) -> None:
    for step in every(stride):
        request = ask(tmp_path)
        lived = not die(step, requests, lambda: answer_all(tmp_path, 1))
        first = request.answer()
        assert first in (None, {"result": 1})
        assert answer_all(tmp_path, 2) == ([WHAT] if first is None else [])
        assert request.answer() == (first or {"result": 2})
        assert not is_asked(FILES, tmp_path)
        request.close()
        if lived:
            break
    assert step > 50


def test_a_line_that_was_cut_short_is_no_answer(tmp_path: Path) -> None:
    request = ask(tmp_path)
    [file] = (tmp_path / "lakelog").glob("request.*")
    file.write_bytes(file.read_bytes() + b'{"result": 1')
    assert request.answer() is None
    assert answer_all(tmp_path, 2) == [WHAT]
    assert request.answer() == {"result": 2}
    request.close()


@pytest.mark.parametrize("verb", ["close", "start", "_execute", "owned"])
def test_no_other_word_is_executed(verb: str, tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        with pytest.raises(KeyError, match=verb):
            store._current.manager()(verb)
        store.put(Message("t", b"as before", queue_id=0))
