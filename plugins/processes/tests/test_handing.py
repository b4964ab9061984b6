"""``lakelog serve`` beside processes that append: it gets the services from their present owner."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from core.tests.store.support import a_store, open_small
from core.tests.store.workers import SERVE, Worker, a_worker
from lakelog import Message, Store
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.shared.ownership import is_served
from lakelog.store.roles import readerparts
from lakelog.store.roles.parts import RoleParts
from tests.support.waiting import until

FILES = RealFileSystem()


@contextmanager
def serving(path: Path, **settings: Any) -> Iterator[Worker]:
    with a_worker(path, SERVE, **settings) as worker:
        assert worker.hear() == {"role": "owner"}
        yield worker


def put(store: Store, body: str) -> int:
    return store.put(Message("t", body.encode(), keys=body, queue_id=0)).queue_offset


def bodies(store: Store) -> list[str]:
    return [bytes(each.body).decode() for each in store.read("t", 0)]


def test_it_has_them_until_it_ends(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        assert (put(store, "first"), store.role) == (0, "owner")
        for number in range(2):
            with serving(tmp_path) as serve:
                assert store.role == "attach"
                put(store, f"beside-{number}")
                assert serve.ask("store.wait_dispatched()") == {"is_": True}
                assert store.wait_dispatched()
                assert bodies(store)[-1] == f"beside-{number}"
            until(lambda: store.role == "owner")
            put(store, f"behind-{number}")
        assert store.wait_dispatched()
        assert bodies(store) == ["first", "beside-0", "behind-0", "beside-1", "behind-1"]
    with open_small(tmp_path) as again:
        assert again.recovery is not None
        assert again.recovery.clean
        assert len(bodies(again)) == 5


def test_it_gets_them_from_one_that_took_them_over(tmp_path: Path) -> None:
    with a_worker(tmp_path, "write") as first:
        assert first.hear() == {"role": "owner"}
        with open_small(tmp_path) as store:
            first.kill()
            until(lambda: store.role == "owner")
            with serving(tmp_path) as serve:
                assert store.role == "attach"
                serve.kill()
            until(lambda: store.role == "owner")
            put(store, "last")
            assert store.wait_dispatched()
            assert bodies(store) == ["last"]


def test_one_that_serves_keeps_them(tmp_path: Path) -> None:
    with serving(tmp_path) as serve, open_small(tmp_path) as store:
        with a_worker(tmp_path, SERVE) as other:
            said = other.hear()
        assert said["error"] == "StoreLocked"
        assert f"process {serve.process.pid} has the services" in said["text"]
        assert serve.ask("store.role") == {"is_": "owner"}
        assert (put(store, "x"), store.role) == (0, "attach")


def test_puts_and_reads_go_on_meanwhile(tmp_path: Path) -> None:
    """Readers and waiters in the process that releases the services are not disturbed."""
    over, failures, puts = threading.Event(), list[BaseException](), [0]

    def again_and_again(work: Any) -> None:
        try:
            while not over.is_set():
                work()
        except BaseException as error:  # noqa: BLE001  # it is raised in the test's thread
            failures.append(error)

    with open_small(tmp_path) as store:

        def puts_one() -> None:
            assert put(store, f"{puts[0]}") == puts[0]
            puts[0] += 1
            over.wait(0.002)  # or there would be very many segments

        def reached(number: int) -> bool:
            return puts[0] >= number or bool(failures)

        def reads() -> None:
            assert store.wait_dispatched()
            found = bodies(store)
            assert found == [str(number) for number in range(len(found))]

        threads = [
            threading.Thread(target=again_and_again, args=(work,)) for work in (puts_one, reads)
        ]
        for each in threads:
            each.start()
        try:
            for _ in range(2):
                with serving(tmp_path):
                    enough = puts[0] + 20
                    until(partial(reached, enough))
                until(lambda: store.role == "owner" or bool(failures))
        finally:
            over.set()
            for each in threads:
                each.join()
        assert failures == []
        assert store.wait_dispatched()
        assert bodies(store) == [str(number) for number in range(puts[0])]


def test_a_store_that_is_closed_when_it_is_asked(tmp_path: Path) -> None:
    """It releases the services by closing, or before; either way the next process gets them."""
    a_store(tmp_path, 3)
    for _ in range(2):
        store = open_small(tmp_path)
        with a_worker(tmp_path, SERVE) as serve:
            store.close()
            assert serve.hear() == {"role": "owner"}
            assert is_served(FILES, tmp_path)


def test_one_that_cannot_give_them_up_keeps_them_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, calls = readerparts.reader_parts, list[int]()

    def fails_once(*arguments: Any) -> RoleParts:
        calls.append(0)
        if len(calls) == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(*arguments)

    with open_small(tmp_path) as store:
        monkeypatch.setattr("lakelog_processes.joining.reader_parts", fails_once)
        with serving(tmp_path):
            assert store.role == "attach"
            assert put(store, "x") == 0
    assert len(calls) == 2
    assert "its services cannot be given up" in caplog.text
