"""A pool of processes that handle the messages of a group: ``Store.work`` and ``lakelog work``.

The pool starts its workers by ``spawn``; each opens the store by itself. A worker that ended is
started again, after pauses that grow. Workers count in memory that they share with the pool, so
that a kill loses no count.
"""

from __future__ import annotations

import logging
import pickle
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from difflib import get_close_matches
from importlib import import_module
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from threading import Event, current_thread, main_thread
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, Final

import attrs

from lakelog.arguments import WrongValue, shown, span_ms, whole, wrong_type
from lakelog.errors import LakelogError, StoreError, StoreReadOnly, raised_by_handler
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.queue_offsets import Queue
from lakelog.registry.loading import BUILTIN
from lakelog.runtime.locks import LockFreeEvent
from lakelog.store.open import open_store
from lakelog_queues.groups.set_aside import DEAD_LETTER_PREFIX, RETRY_PREFIX
from lakelog_queues.groups.working import (
    FAILED,
    HANDLED,
    SPAWN,
    TIMED_OUT,
    Handle,
    Worker,
    WorkOptions,
    function_of,
)

if TYPE_CHECKING:
    from lakelog import Store
    from lakelog.store.parts import OpenRequest

MOST_WORKERS: Final = 1024
_STOP: Final = (signal.SIGTERM, signal.SIGINT)
_LOOK_S: Final = 0.2
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 30.0
_SETTLED_S: Final = 60.0
"""A worker that ran for so long is started again after the first pause."""
_log = logging.getLogger("lakelog")


@attrs.frozen
class WorkProgress:
    """What a pool has done since it began.

    :ivar handled: number of messages that were handled and acknowledged
    :ivar failed: number of times that a message was returned, as its function raised or took too
        long
    :ivar dead_letters: number of new dead letters of the group, those of other members included
    :ivar lag: number of messages that are not acknowledged, retries included
    :ivar in_flight: how many of these were handed out, or returned and wait
    :ivar workers: number of processes that run
    :ivar restarts: number of processes that were started in place of others
    """

    handled: int
    failed: int
    dead_letters: int
    lag: int
    in_flight: int
    workers: int
    restarts: int


@attrs.frozen
class _Job:
    """What a worker needs, in the form in which it is sent.

    :ivar plugins: those given to the open of the pool's store; of a module, the name
    """

    path: Path
    settings: Mapping[str, Any]
    plugins: Sequence[object] | None
    handle: Handle
    options: WorkOptions

    @classmethod
    def of(cls, request: OpenRequest, handle: Handle, options: WorkOptions) -> _Job:
        if not isinstance(request.files, RealFileSystem):
            raise WrongValue("a store with files= is of one process only: give workers=0")
        given = None
        if request.registry.are_given:
            sources = request.registry.plugged.sources
            loaded = [each.load() for name, each in sources.items() if name != BUILTIN]
            given = [each.__name__ if isinstance(each, ModuleType) else each for each in loaded]
        settings = request.settings
        values = settings.values().items()
        chosen = {name: value for name, (_, _, value) in values if settings.is_chosen(name)}
        return cls(request.path, chosen, given, handle, options)

    def open(self) -> Store:
        named = self.plugins
        if named is not None:
            named = [import_module(each) if isinstance(each, str) else each for each in named]
        return open_store(self.path, plugins=named, **self.settings)


def _sent(job: _Job) -> bytes:
    """``job`` as bytes; raises :class:`WrongValue` if another process could not read it."""
    try:
        return pickle.dumps(job)
    except Exception as error:
        if raised_by_handler(error):
            raise
        name = getattr(job.handle, "__qualname__", repr(job.handle))
        raise WrongValue(
            f"{name} cannot be sent to another process ({error}): give a function that is defined "
            "at the top of a module, no lambda and no function inside of another; or workers=0"
        ) from error


def _received(sent: bytes) -> _Job:
    try:
        job: _Job = pickle.loads(sent)  # of our own pool
    except (ImportError, AttributeError) as error:
        raise WrongValue(
            f"the function cannot be imported in a new process ({error}): define it at the top of "
            "a module, or of the file that is run"
        ) from error
    return job


def _run_worker(sent: bytes, ready: Connection, counts: Any, number: int) -> None:
    """The program of worker ``number``; it answers by ``ready``: ``None``, or the first error."""
    stopping = LockFreeEvent()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C: the pool stops its workers
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP)
    own: Any = memoryview(counts).cast("B").cast("Q")[2 * number : 2 * number + 2]
    with ExitStack() as opened:
        try:
            job = _received(sent)
            handle = function_of(job.handle)
            store = opened.enter_context(job.open())
            made = Worker(store, handle, job.options, own, stopping, may_end=True)
            worker = opened.enter_context(made)
        except Exception as error:
            is_ours = isinstance(error, LakelogError)
            words = f"a worker cannot begin: {type(error).__name__}: {error}"
            ready.send(error if is_ours else StoreError(words))
            if is_ours:
                sys.exit(1)
            raise
        ready.send(None)
        ready.close()
        worker.serve()


@attrs.define
class _Slot:
    """The place of one worker; its processes follow one another.

    :ivar ready: brings the worker's answer; ``None`` after that
    :ivar due_s: when its next process is started, if none runs
    """

    number: int
    process: SpawnProcess | None = None
    ready: Connection | None = None
    begun_s: float = 0.0
    pause_s: float = 0.0
    due_s: float = 0.0


class WorkerPool:
    """Runs workers until a signal, or until all is handled."""

    def __init__(
        self,
        store: Store,
        request: OpenRequest,
        handle: Handle,
        options: WorkOptions,
        *,
        workers: int,
        on_progress: Callable[[WorkProgress], object] | None,
        progress_interval_ms: float,
        stop: Event | None,
    ) -> None:
        """Check the arguments; nothing is started yet."""
        if store.role in ("read", "replica"):
            raise StoreReadOnly("workers need a store that is open for writing", path=store.path)
        if (count := whole("workers", workers)) > MOST_WORKERS:
            raise WrongValue(f"workers is {shown(count)}; give {MOST_WORKERS} or less")
        if on_progress is not None and not callable(on_progress):
            raise wrong_type("on_progress", on_progress, "a function that takes a WorkProgress")
        if stop is not None and not hasattr(stop, "is_set"):
            raise wrong_type("stop", stop, "a threading.Event")
        self._store, self._options, self._stop_event = store, options, stop
        self._topics = *options.topic_names, f"{RETRY_PREFIX}{options.group}"
        self._function = function_of(handle)
        self._sent = _sent(_Job.of(request, handle, options)) if count else b""
        self._interval_s = span_ms("progress_interval_ms", progress_interval_ms) / 1000
        self._on_progress = on_progress or _log_progress
        self._slots = [_Slot(number) for number in range(count)]
        self._counts: Any = SPAWN.RawArray("Q", 2 * max(count, 1))
        self._signals = 0
        self._stopping = LockFreeEvent()
        self._has_begun = False
        self._restarts = 0
        self._look_s = 0.0
        self._report_s = time.monotonic() + self._interval_s
        self._dead_before = self._dead_letters()

    def run(self) -> WorkProgress:
        """Work until SIGTERM, SIGINT, the event, or the end; returns what was done.

        A second signal ends the workers at once, and raises ``KeyboardInterrupt``.
        """
        with self._signalled():
            self._turn()  # it may be stopped already
            self._warn()
            if self._slots:
                self._run_processes()
            else:
                with Worker(
                    *(self._store, self._function, self._options, self._counts, self._stopping),
                    may_end=False,
                ) as worker:
                    worker.serve(self._turn)
        return self.progress()

    def _warn(self) -> None:
        """Log why workers may get nothing."""
        counts = {topic: len(self._store.queues(topic)) for topic in self._options.topic_names}
        for topic in (each for each, count in counts.items() if not count):
            near = get_close_matches(topic, self._store.topics(), 1)
            hint = f"; do you mean {near[0]!r}?" if near else ""
            _log.warning("topic %r has no messages yet%s", topic, hint)
        queues = sum(counts.values())
        if 0 < queues < len(self._slots):
            text = "some workers get nothing (workers: %d, queues: %d); start fewer, or add queues"
            _log.warning(text, len(self._slots), queues)

    def progress(self) -> WorkProgress:
        """What was done so far."""
        status = self._store.group_status(self._options.group)
        in_flight = sum(each.topic in self._topics for each in status.in_flight)
        return WorkProgress(
            sum(self._counts[HANDLED::2]),
            sum(self._counts[FAILED::2]),
            self._dead_letters() - self._dead_before,
            self._behind(status.next_offsets) + in_flight,
            in_flight,
            sum(each.process is not None for each in self._slots),
            self._restarts,
        )

    def _behind(self, offsets: Mapping[Queue, int]) -> int:
        """The number of messages from ``offsets`` on; from the committed ones in other queues."""
        committed = self._store.groups().get(self._options.group, {})
        left = 0
        for topic in self._topics:
            for each in self._store.queues(topic):
                at = committed.get(topic, {}).get(each.queue_id, each.min_offset)
                left += max(each.max_offset - offsets.get((topic, each.queue_id), at), 0)
        return left

    def _dead_letters(self) -> int:
        queues = self._store.queues(f"{DEAD_LETTER_PREFIX}{self._options.group}")
        return sum(each.max_offset for each in queues)

    def _turn(self) -> None:
        """Look whether to report, and whether to stop."""
        now_s = time.monotonic()
        if now_s < self._look_s:
            return
        self._look_s = now_s + _LOOK_S
        if now_s >= self._report_s:
            self._report_s = now_s + self._interval_s
            self._on_progress(self.progress())
        if (self._stop_event is not None and self._stop_event.is_set()) or self._is_empty():
            self._stopping.set()

    def _is_empty(self) -> bool:
        is_begun = all(each.process and not each.ready for each in self._slots)
        return self._options.until_empty and is_begun and not self._behind({})

    @contextmanager
    def _signalled(self) -> Iterator[None]:
        """Handle signals; only the main thread gets any."""
        former: dict[signal.Signals, Any] = {}
        try:
            if current_thread() is main_thread():
                for each in _STOP:
                    former[each] = signal.signal(each, self._on_signal)
            yield
        finally:
            for each, handler in former.items():
                signal.signal(each, handler)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._signals += 1
        self._stopping.set()
        if self._signals == 2:  # the second one does not wait
            raise KeyboardInterrupt

    # --- processes ---

    def _run_processes(self) -> None:
        resource_tracker.ensure_running()  # it unblocks the signals
        try:
            for slot in self._slots:
                self._start(slot)
            while not self._stopping.is_set():
                self._await(_LOOK_S)
                for slot in self._slots:
                    self._check(slot)
                self._turn()
        finally:
            try:
                if self._signals <= 1:
                    self._stop_workers()
            finally:
                self._kill_workers()

    def _await(self, seconds: float) -> None:
        """Wait until a worker has answered or ended."""
        ready = [each.ready for each in self._slots if each.ready is not None]
        running = [each.process.sentinel for each in self._slots if each.process is not None]
        wait([*ready, *running], seconds)

    def _start(self, slot: _Slot) -> None:
        reader, writer = SPAWN.Pipe(duplex=False)
        arguments = (self._sent, writer, self._counts, slot.number)
        process = SPAWN.Process(target=_run_worker, args=arguments, name=f"worker-{slot.number}")
        slot.begun_s = time.monotonic()
        with writer:
            try:
                with _blocked():
                    process.start()
            except OSError as error:
                reader.close()
                self._rest(slot, f"cannot be started: {error.strerror or error}")
            else:
                slot.process, slot.ready = process, reader

    def _check(self, slot: _Slot) -> None:
        """Take the answer of a worker; start one again that ended."""
        if slot.ready is not None and slot.ready.poll():
            error: LakelogError | None = None
            with slot.ready as ready, suppress(EOFError):  # it died
                error = ready.recv()
                self._has_begun |= error is None
            slot.ready = None
            if error is not None and not self._has_begun:
                raise error
        if slot.process is None:
            if time.monotonic() >= slot.due_s:
                self._restarts += 1
                self._start(slot)
        elif slot.process.exitcode is not None:
            how = _exit_text(slot.process.exitcode)
            slot.process.close()
            slot.process = None
            self._rest(slot, how)

    def _rest(self, slot: _Slot, how: str) -> None:
        """Start a process for ``slot`` later; raises if no worker has ever begun."""
        if not self._has_begun:
            raise StoreError(
                f"a worker {how} before it began; its error is on stderr. A script that calls "
                "work() when it is imported needs: if __name__ == '__main__'",
                path=self._store.path,
            )
        lived_s = time.monotonic() - slot.begun_s
        doubled_s = max(2 * slot.pause_s, _FIRST_PAUSE_S)
        slot.pause_s = _FIRST_PAUSE_S if lived_s >= _SETTLED_S else min(doubled_s, _LONGEST_PAUSE_S)
        slot.due_s = time.monotonic() + slot.pause_s
        _log.warning("worker %d %s; another starts in %.1f s", slot.number, how, slot.pause_s)

    def _stop_workers(self) -> None:
        """Let the workers finish what is in work, until the time is over."""
        end_s = time.monotonic() + self._options.stop_timeout_ms / 1000
        for process in self._running():
            process.terminate()
        _log.info("the workers stop after what is in work")
        while running := [each.sentinel for each in self._running()]:
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                break
            wait(running, left_s)

    def _running(self) -> list[SpawnProcess]:
        found = [each.process for each in self._slots if each.process is not None]
        return [each for each in found if each.exitcode is None]

    def _kill_workers(self) -> None:
        for process in self._running():
            _log.warning("%s is killed; others get its messages again", process.name)
            process.kill()
        for slot in self._slots:
            if slot.ready is not None:
                slot.ready.close()
                slot.ready = None
            if slot.process is not None:
                slot.process.join()
                slot.process.close()
                slot.process = None


@contextmanager
def _blocked() -> Iterator[None]:
    """Block the signals that stop a pool: a process that starts here handles them itself later."""
    former = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def _exit_text(code: int) -> str:
    if code == TIMED_OUT:
        return "ended itself after the time limit"
    return f"ended with code {code}" if code >= 0 else f"was ended by signal {-code}"


def _log_progress(done: WorkProgress) -> None:
    _log.info(
        "handled %d, failed %d, dead letters %d, lag %d, in flight %d, %d workers",
        *(done.handled, done.failed, done.dead_letters, done.lag, done.in_flight, done.workers),
    )
