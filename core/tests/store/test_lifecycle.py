"""New paths, and stores that are closed, forked, or asked for what is not there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import settings

from core.tests.registry.samples import plugin
from core.tests.store.faults import SeenFiles
from core.tests.store.support import a_store, bodies, fill, open_small, read_small, tree
from lakelog import Message, PutRefused, PutStatus, Store
from lakelog.errors import NotAStore, PluginError, StoreClosed, StoreReadOnly
from lakelog.hooks import Context, Factory, Kind, NoSettings
from lakelog_testing import StoreMachine

M = Message("t", b"")
ASKS: dict[str, Callable[[Store], Any]] = {
    "get": lambda store: store.get("t", 0, 0),
    "look_up": lambda store: store.look_up(0),
    "scan": lambda store: store.scan(),
    "topics": lambda store: store.topics(),
    "groups": lambda store: store.groups(),
    "delete_topic": lambda store: store.delete_topic("t"),
    "resume_dispatch": lambda store: store.resume_dispatch(),
    "wait_dispatched": lambda store: store.wait_dispatched(),
    "consumer": lambda store: store.consumer("g", "t"),
}
PUTS: tuple[Callable[[Store], Any], ...] = (
    lambda store: store.put(M),
    lambda store: store.put_async(M),
    lambda store: store.put_batch([M]),
    lambda store: store.put_batch([]),
    lambda store: store.put_batch_async([M]).result(timeout=10),
    lambda store: store.put_batch_async([]).result(timeout=10),
    lambda store: store.producer("t").put(b""),
    lambda store: store.producer("t").put_many([b""]),
)


def puts_are_refused(store: Store, match: str) -> None:
    for put in PUTS:
        with pytest.raises(PutRefused, match=match) as caught:
            put(store)
        assert caught.value.status is PutStatus.SERVICE_NOT_AVAILABLE


@pytest.mark.both_ways
@pytest.mark.parametrize("attached", [False, True])
def test_a_closed_store_answers_nothing(tmp_path: Path, attached: bool) -> None:
    with open_small(tmp_path) if attached else nullcontext():
        store = open_small(tmp_path)
        fill(store, 5)
        consumer = store.consumer("g", "t", start="earliest")
        assert len(consumer.poll(1, 20_000)) == 1
        store.close()
        store.close()
    before = tree(tmp_path)
    assert "closed" in repr(store)
    for ask in ASKS.values():
        with pytest.raises(StoreClosed):
            ask(store)
    for use in (consumer.poll, consumer.commit):
        with pytest.raises(StoreClosed):
            use()
    puts_are_refused(store, "closed")
    assert tree(tmp_path) == before


@pytest.mark.both_ways
def test_a_store_opened_for_reading_is_not_written_to(tmp_path: Path) -> None:
    a_store(tmp_path, 3)
    before = tree(tmp_path)
    with read_small(tmp_path) as store:
        assert store.read_only
        puts_are_refused(store, "mode='write'")
        with pytest.raises(StoreReadOnly, match="owner"):
            store.flush()
    assert tree(tmp_path) == before


def test_closing_wakes_who_waits_for_the_dispatch(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        with open_small(tmp_path) as store:
            waiting = pool.submit(store.wait_dispatched, 10**9, timeout_ms=60_000)
            time.sleep(0.05)
        with pytest.raises(StoreClosed):
            waiting.result(10)


def test_an_unknown_topic_cannot_be_removed(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        store.put(Message("orders", b"x"))
        store.wait_dispatched()
        for topic in ("order", ".."):
            with pytest.raises(ValueError, match="no queue of topic"):
                store.delete_topic(topic)
    assert not (tmp_path / "lakelog" / "tombstones.json").exists()


def test_a_reader_misses_nothing_when_a_topic_is_removed(tmp_path: Path) -> None:
    with open_small(tmp_path) as store, read_small(tmp_path) as reader:
        for topic in ("gone", "other"):
            end = store.put(Message(topic, b"before", queue_id=0)).end_offset
            assert reader.wait_dispatched(end)
            assert bodies(reader.get(topic, 0, 0).messages) == [b"before"]
        store.put(Message("other", b"meanwhile", queue_id=0))
        store.delete_topic("gone")
        end = store.put(Message("gone", b"after", queue_id=0)).end_offset
        assert reader.wait_dispatched(end)
        assert bodies(reader.get("other", 0, 0).messages) == [b"before", b"meanwhile"]
        assert bodies(reader.get("gone", 0, 1).messages) == [b"after"]
        assert reader.queue_bounds("gone", 0) == (1, 2)


def test_the_lag_begins_with_the_store(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        for _ in range(20):
            store.put(Message("t", b"x"))
            assert store.dispatch_lag.ms < 60_000


PROGRAM = """
import os, sys
import lakelog

def told():
    return [os.readlink(f"/proc/self/fd/{number}") for number in (0, 1, 2)]

with lakelog.open(sys.argv[1], segment_size_bytes="64KiB", preallocate=False) as store:
    store.put(lakelog.Message("t", b"x"))
    owner = told()
    reader = lakelog.open(sys.argv[1], mode="read")
    os.write(2, b"what is said here is lost")
    assert [bytes(each.body) for each in reader.scan()] == [b"x"]
    reader.close()
    with open(sys.argv[2], "w") as out:
        out.write(" ".join(owner))
"""


def test_files_of_a_store_take_no_place_of_a_standard_stream(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "store"), str(tmp_path / "out")]
    closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command]
    assert subprocess.run(closed, timeout=60, check=False).returncode == 0
    assert (tmp_path / "out").read_text() == "/dev/null /dev/null /dev/null"


class CoreAlone(StoreMachine):
    """Nothing but what the core brings."""

    settings = MappingProxyType(
        {"plugins": [], "consume-queue": {"file_entries": 7}, "preallocate": False}
    )


TestCoreAlone = CoreAlone.TestCase
TestCoreAlone.settings = settings(max_examples=10, stateful_step_count=30, deadline=None)


class Eager:
    """A dispatcher that makes its folder, and a file in it, in its constructor."""

    directories = ("eager",)

    def __init__(self, path: Path, then: str | None) -> None:
        folder = path / "eager"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "state").write_bytes(b"1")
        if then == "raises":
            raise RuntimeError("no luck")
        if then == "dies":
            os.kill(os.getpid(), signal.SIGKILL)

    def resume(self, minimum: int, end: int) -> int:
        return end

    def dispatch(self, batch: Any) -> None:
        """Builds nothing."""

    def truncate(self, end_offset: int) -> None:
        """Builds nothing."""

    def flush(self) -> None:
        """Builds nothing."""

    def close(self) -> None:
        """Builds nothing."""


def given(then: str | None = None) -> dict[str, Any]:
    def make(_settings: object, context: Context) -> Eager:
        return Eager(context.path, then)

    offers = [Factory(Kind.DISPATCHER, "eager", NoSettings, make)]
    return {
        "plugins": [plugin("eagerly", lakelog_dispatchers=lambda: offers)],
        "dispatchers": ["consume-queue", "eager"],
    }


def is_usable(path: Path, **more: Any) -> bool:
    with open_small(path, **more) as store:
        store.put(Message("t", b"1", queue_id=0))
    with open_small(path, **more) as store:
        return len(list(store.scan())) == 1


def test_new_folders_are_named_durably(tmp_path: Path) -> None:
    """Each by a sync of the folder that it is in, before the first message."""
    files, path = SeenFiles(), tmp_path / "new" / "store"
    with open_small(path, files=files) as store:
        synced = {each for call, each in files.seen if call == "sync_dir"}
        assert {tmp_path, path.parent, path} <= synced
        store.put(Message("t", b"1", queue_id=0))


def test_a_folder_that_a_constructor_makes(tmp_path: Path) -> None:
    assert is_usable(tmp_path / "s", **given())
    assert not (tmp_path / "s" / "lakelog" / "new").exists()


@pytest.mark.parametrize("again", [given(), {}], ids=["with it", "without it"])
def test_an_open_that_failed_behind_it(tmp_path: Path, again: dict[str, Any]) -> None:
    with pytest.raises(PluginError, match="no luck"):
        open_small(tmp_path / "s", **given("raises"))
    with pytest.raises(NotAStore, match="no store is here"):
        read_small(tmp_path / "s")
    assert is_usable(tmp_path / "s", **again)


def test_an_open_that_was_killed_behind_it(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from core.tests.store.test_lifecycle import given, open_small\n"
        "open_small(Path(sys.argv[1]), **given('dies'))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "s")], check=False)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "s" / "eager" / "state").exists()
    assert is_usable(tmp_path / "s", **given())


def test_a_directory_of_something_else_is_refused_before_a_strategy_sees_it(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("work")
    with pytest.raises(NotAStore, match=r"thesis\.tex"):
        open_small(tmp_path, **given())
    assert [each.name for each in tmp_path.iterdir()] == ["thesis.tex"]


def test_an_open_that_failed_leaves_nothing_where_no_strategy_made_anything(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="'nowhere'"):
        open_small(tmp_path / "s", dispatchers=["nowhere"])
    assert list(tmp_path.iterdir()) == []
