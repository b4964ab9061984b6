"""A pool of workers: what is handled, how often, and what is left by kills and stops."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import pytest

import lakelog
from lakelog import Store
from lakelog.arguments import WrongType, WrongValue
from lakelog.errors import SettingsError, StoreError, StoreReadOnly
from lakelog_queues.groups.pool import WorkProgress
from plugins.queues.tests.groups import handlers
from plugins.queues.tests.groups.handlers import lines
from plugins.queues.tests.groups.support import committed, drain, fill, joined, open_store
from tests.support.waiting import until

ROOT: Final = Path(__file__).parents[4]
EARLIEST: Final[dict[str, Any]] = {"group": "g", "start": "earliest"}
SHORT: Final[dict[str, Any]] = {**EARLIEST, "commit_interval_ms": 100}


@contextmanager
def working(store: Store, handle: Any, **more: Any) -> Iterator[list[WorkProgress]]:
    """Run a pool in a thread, until the end of the block; its counts are in the list then."""
    stop, done = Event(), list[WorkProgress]()
    thread = Thread(target=lambda: done.append(store.work("t", handle, stop=stop, **SHORT, **more)))
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join(120)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def has_ended(notes: Path, count: int) -> bool:
    """Whether so many messages were handled."""
    return len(lines(notes, "end")) >= count


# --- kills -------------------------------------------------------------------------------------


def test_killed_workers_lose_nothing_and_repeat_only_what_they_had_in_work(
    store: Store, notes: Path
) -> None:
    fill(store, 600)
    killed = set[int]()
    with working(store, partial(handlers.handle, notes), workers=2) as done:
        for reached in (100, 250, 400):
            until(partial(has_ended, notes, reached), seconds=120)
            alive = [pid for _, pid in lines(notes, "begin")[::-1] if pid not in killed]
            killed.add(alive[0])
            os.kill(alive[0], signal.SIGKILL)
        until(lambda: {number for number, _ in lines(notes, "end")} == set(range(600)), seconds=120)
        until(lambda: sum(committed(store).values()) == 600, seconds=60)
    assert done[0].restarts == 3
    begun: defaultdict[int, list[int]] = defaultdict(list)
    last = dict[int, int]()
    for number, pid in lines(notes, "begin"):
        begun[number].append(pid)
        last[pid] = number
    again = {number: pids for number, pids in begun.items() if len(pids) > 1}
    assert all(pids[0] in killed and last[pids[0]] == each for each, pids in again.items()), again
    assert done[0].handled + len(killed) >= 600  # a kill between an acknowledgement and its count
    assert done[0].lag == 0


MANY: Final = 5000


def test_workers_end_with_a_killed_pool(tmp_path: Path, notes: Path) -> None:
    with open_store(tmp_path / "store") as store:
        fill(store, MANY)
    with pool_process(tmp_path / "store", "handle_once_open", notes, tmp_path / "gate") as pool:
        until(lambda: len(lines(notes, "begin")) == 2, seconds=120)
        pool.kill()
        pool.wait(60)
        (tmp_path / "gate").touch()
        until(lambda: not any(is_alive(pid) for _, pid in lines(notes, "begin")), seconds=120)
    begun = lines(notes, "begin")  # a worker may begin others before it sees that
    assert len(begun) < MANY
    assert sorted(lines(notes, "end")) == sorted(begun)


# --- stops -------------------------------------------------------------------------------------

POOL: Final = """
import logging
import sys
from functools import partial
from pathlib import Path
from plugins.queues.tests.groups import handlers
from plugins.queues.tests.groups.support import open_store

if __name__ == "__main__":
    path, name, *given = sys.argv[1:]
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
    handle = partial(getattr(handlers, name), *map(Path, given))
    with open_store(Path(path)) as store:
        options = {"workers": 2, "start": "earliest", "progress_interval_ms": 3_600_000}
        print(store.work("t", handle, group="g", **options).handled)
"""


@contextmanager
def pool_process(path: Path, handler: str, *given: Path) -> Iterator[subprocess.Popen[str]]:
    script = path.with_name("pool.py")
    script.write_text(POOL)
    words = [sys.executable, str(script), str(path), handler, *map(str, given)]
    found = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": found}
    pipe = subprocess.PIPE
    with subprocess.Popen(words, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("to_all", [False, True], ids=["sigterm", "ctrl-c"])
def test_a_stop_finishes_what_is_in_work_and_leaves_the_rest(
    tmp_path: Path, notes: Path, to_all: bool
) -> None:
    path, gate = tmp_path / "store", tmp_path / "gate"
    with open_store(path) as store:
        fill(store, 8)
    with pool_process(path, "handle_once_open", notes, gate) as pool:
        until(lambda: len(lines(notes, "begin")) == 2, seconds=120)
        for pid in {pid for _, pid in lines(notes, "begin")} if to_all else ():
            os.kill(pid, signal.SIGINT)  # a terminal sends it to all of them
        pool.send_signal(signal.SIGINT if to_all else signal.SIGTERM)
        assert pool.stdout is not None
        assert pool.stdout.readline() == "the workers stop after what is in work\n"
        gate.touch()
        said, errors = pool.communicate(timeout=120)
        assert (pool.returncode, said, errors) == (0, "2\n", "")
    assert len(lines(notes, "end")) == 2
    with open_store(path) as store, joined(store) as next_one:
        left = next_one.poll(16)
        assert len(left) == 6, "nobody waits for the invisible time of what was given back"
        handled = {number for number, _ in lines(notes, "end")}
        assert {int(bytes(each.message.body)) for each in left} == set(range(8)) - handled


def test_a_second_signal_kills_the_workers(tmp_path: Path, notes: Path) -> None:
    path = tmp_path / "store"
    with open_store(path) as store:
        fill(store, 8)
    with pool_process(path, "handle_once_open", notes, tmp_path / "never") as pool:
        until(lambda: len(lines(notes, "begin")) == 2, seconds=120)
        workers = {pid for _, pid in lines(notes, "begin")}
        pool.send_signal(signal.SIGTERM)
        pool.send_signal(signal.SIGINT)  # two of one kind may count as one
        assert "KeyboardInterrupt" in pool.communicate(timeout=60)[1]
        assert not any(is_alive(pid) for pid in workers)
    with open_store(path) as store, joined(store) as next_one:
        assert len(drain(next_one, count=8)) == 8


def test_a_worker_that_is_stopped_alone_is_replaced(store: Store, notes: Path) -> None:
    fill(store, 4)
    with working(store, partial(handlers.handle, notes), workers=1) as done:
        until(lambda: len(lines(notes, "end")) == 4, seconds=120)
        os.kill(lines(notes, "end")[0][1], signal.SIGTERM)
        fill(store, 8)
        until(lambda: len(lines(notes, "end")) == 12, seconds=120)
    assert (done[0].handled, done[0].restarts, done[0].lag) == (12, 1, 0)


# --- functions that fail -----------------------------------------------------------------------


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is returned come again at once, in this process."""
    monkeypatch.setattr("lakelog_queues.groups.consumer.retry_delay_ms", lambda _attempt: 0)


@pytest.mark.usefixtures("at_once")
def test_a_function_that_raises_gets_the_message_again_and_then_there_is_a_dead_letter(
    store: Store, notes: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, 8)
    handle = partial(handlers.fail_at_0, notes)
    done = store.work("t", handle, workers=0, until_empty=True, max_attempts=3, **EARLIEST)
    assert done == WorkProgress(7, 4, 1, 0, 0, 0, 0)
    assert Counter(number for number, _ in lines(notes, "begin-of-t"))[0] == 3, "as it was put"
    assert {number for number, _ in lines(notes, "end")} == set(range(1, 8))
    failures = [each for each in caplog.records if each.exc_info]
    assert len(failures) == 4
    (text,) = [each for each in caplog.messages if "message 0 of queue 0 of topic t (" in each]
    assert text.endswith("attempt 1) failed: ValueError")
    (dead,) = store.get("%DLQ%g", 0, 0).messages
    assert bytes(dead.body) == b"0"


def test_a_function_that_hangs_ends_its_process_after_the_time_limit(
    store: Store, notes: Path
) -> None:
    fill(store, 8)
    with working(
        store, partial(handlers.hang_at_0, notes), workers=1, time_limit_ms=1000, max_attempts=1
    ) as done:
        until(lambda: len(lines(notes, "end")) == 7, seconds=120)
        until(lambda: store.queues("%DLQ%g"), seconds=120)
    assert (done[0].handled, done[0].failed, done[0].dead_letters) == (7, 1, 1)
    assert done[0].restarts == 1
    assert [number for number, _ in lines(notes, "begin")].count(0) == 1


def test_what_takes_longer_than_its_invisible_time_is_handled_once(
    store: Store, notes: Path
) -> None:
    fill(store, 1)
    handle = partial(handlers.handle_slowly, notes, 8)
    more = {**SHORT, "invisible_ms": 2000, "idle_ms": 300}  # the other worker soon has its queue
    done = store.work("t", handle, workers=2, until_empty=True, **more)
    assert done.handled == 1
    assert [number for number, _ in lines(notes, "begin")] == [0]


# --- asynchronous functions --------------------------------------------------------------------


def test_an_asynchronous_function_runs_many_times_at_once(store: Store, notes: Path) -> None:
    fill(store, 8)
    handle = partial(handlers.meet, notes)
    done = store.work("t", handle, workers=1, concurrency=4, until_empty=True, **EARLIEST)
    assert done.handled == 8
    assert sorted(number for number, _ in lines(notes, "end")) == list(range(8))


@pytest.mark.usefixtures("at_once")
def test_an_asynchronous_function_is_cancelled_after_the_time_limit(
    store: Store, notes: Path
) -> None:
    fill(store, 2)
    done = store.work(
        *("t", partial(handlers.never, notes)),
        **EARLIEST,
        workers=0,
        until_empty=True,
        time_limit_ms=100,
        max_attempts=1,
    )
    assert (done.handled, done.failed, done.dead_letters) == (0, 2, 2)


# --- what is called, and how -------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_is_acknowledged_together(store: Store, notes: Path, workers: int) -> None:
    fill(store, 20)
    handle = partial(handlers.handle_batch, notes)
    done = store.work("t", handle, workers=workers, batch=8, until_empty=True, **EARLIEST)
    assert (done.handled, done.lag) == (20, 0)
    assert max(size for size, _ in lines(notes, "batch")) == 8


def test_workers_open_the_store_as_the_pool_has_it(tmp_path: Path, notes: Path) -> None:
    with open_store(tmp_path / "s", record_crc=True, commitlog_path=tmp_path / "log") as store:
        fill(store, 4)
        handle = partial(handlers.handle, notes)
        assert store.work("t", handle, workers=1, until_empty=True, **EARLIEST).handled == 4


def test_progress_is_reported(store: Store, notes: Path) -> None:
    fill(store, 4)
    found = list[WorkProgress]()
    gate = notes.with_name("gate")
    handle = partial(handlers.handle_once_open, notes, gate)
    more: dict[str, Any] = {"on_progress": found.append, "progress_interval_ms": 10}
    with working(store, handle, workers=1, **more):
        until(lambda: found and found[-1].workers == 1 and found[-1].lag == 4, seconds=120)
        gate.touch()
        until(lambda: found[-1].handled == 4 and found[-1].lag == 0, seconds=120)


def test_one_slow_message_is_no_lag_of_its_queue(store: Store, notes: Path) -> None:
    found = list[WorkProgress]()
    gate = notes.with_name("gate")
    handle = partial(handlers.wait_with_0, gate)
    more: dict[str, Any] = {"on_progress": found.append, "progress_interval_ms": 10}
    fill(store, 20, queues=1)
    with working(store, handle, workers=0, **more):
        until(lambda: found and found[-1].handled == 19, seconds=120)
        until(lambda: (found[-1].lag, found[-1].in_flight) == (1, 1), seconds=20)
        gate.touch()
        until(lambda: (found[-1].lag, found[-1].in_flight) == (0, 0))


def inner() -> Callable[[Any], None]:
    def local(_message: object) -> None: ...

    return local


@pytest.mark.parametrize(
    ("handle", "more", "error", "words"),
    [
        (lambda _: None, {}, WrongValue, "at the top of a module"),
        (inner(), {}, WrongValue, "at the top of a module"),
        (7, {}, WrongType, "handle is 7"),
        ("tasks", {}, WrongValue, "MODULE:FUNCTION"),
        ("no_such_tasks:bill", {}, WrongValue, "No module named 'no_such_tasks'"),
        ("os:no_such", {}, WrongValue, "no attribute 'no_such'"),
        ("os:sep", {}, WrongType, "a function"),
        ("os:stat", {"concurrency": 2}, SettingsError, "async def"),
        ("os:stat", {"broadcast": "b"}, SettingsError, "leave it out"),
        ("os:stat", {"workers": -1}, WrongValue, "workers is -1"),
        ("os:stat", {"batch": 0}, WrongValue, "batch is 0"),
        ("os:stat", {"invisible_ms": 0}, WrongValue, "invisible_ms is 0"),
        ("os:stat", {"tags": "a", "filter": "b = 1"}, SettingsError, "'tags' or 'filter'"),
    ],
)
def test_wrong_arguments(
    store: Store, handle: Any, more: Mapping[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        store.work("t", handle, **{"group": "g", "workers": 1, **more})


def test_a_reader_cannot_work(store: Store) -> None:
    with (
        open_store(store.path, mode="read") as reader,
        pytest.raises(StoreReadOnly, match="open for writing"),
    ):
        reader.work("t", "os:stat", group="g")


@pytest.mark.usefixtures("at_once")
def test_a_coroutine_that_did_not_run_is_a_failure(
    store: Store, notes: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, 1)
    handle = partial(handlers.without_await, notes)
    done = store.work("t", handle, workers=0, until_empty=True, max_attempts=1, **EARLIEST)
    assert (done.handled, done.dead_letters) == (0, 1)
    assert "make it an 'async def'" in caplog.text


def test_a_script_without_a_main_block_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import lakelog\n"
        f"store = lakelog.open({str(tmp_path / 'store')!r}, segment_size_bytes='1MiB')\n"
        "def handle(message): ...\n"
        "store.work('t', handle, group='g', workers=1)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 1
    assert "needs: if __name__ == '__main__'" in done.stderr.splitlines()[-1]


def test_workers_that_cannot_open_the_store_say_why(tmp_path: Path) -> None:
    with (
        lakelog.open(tmp_path, mode="exclusive", segment_size_bytes="1MiB") as store,
        pytest.raises(StoreError, match="exclusive"),
    ):
        store.work("t", "os:stat", group="g", workers=1)


def test_a_pool_warns_of_workers_without_queues(
    store: Store, notes: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, 2, queues=1)
    caplog.set_level(logging.WARNING)
    handle = partial(handlers.handle, notes)
    store.work("t", handle, workers=2, until_empty=True, **EARLIEST)
    assert "(workers: 2, queues: 1)" in caplog.text


def test_a_pool_warns_of_a_topic_without_messages(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.put(lakelog.Message("orders", b"x"))
    store.work(["order", "other"], repr, group="g", workers=0, until_empty=True, stop=None)
    assert "topic 'order' has no messages yet; do you mean 'orders'?" in caplog.text
    assert "topic 'other' has no messages yet\n" in caplog.text
