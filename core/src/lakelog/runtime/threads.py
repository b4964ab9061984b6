"""Starts threads for the store and its plugins, and gives them work.

Python raises a bare ``RuntimeError`` if the system refuses a thread (``EAGAIN``); here that is an
error of lakelog. An executor also keeps the submitted work, and would run it later, when the caller
no longer expects it.

Futures, executors and events of the standard library have locks that an exception of a signal
handler leaves acquired: all other threads then wait for ever. A finalizer that submits work, run by
the collector inside of a submission, waits for itself. What is here has no such locks.

A signal handler starts a thread by :func:`soon`.
"""

from __future__ import annotations

import logging
import sys
import threading
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures._base import CANCELLED_AND_NOTIFIED, FINISHED, LOGGER, PENDING
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from threading import Event, Thread, current_thread, get_ident, main_thread
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeAlias, TypeVar, cast
from weakref import ref

from lakelog.errors import StoreError, ThreadNotStarted
from lakelog.runtime.locks import LockFreeEvent, WaitList

_LOG: Final = logging.getLogger("lakelog")

AnyThread = TypeVar("AnyThread", bound=Thread)

P = ParamSpec("P")

Result = TypeVar("Result")

_LOOK_SECONDS: Final = 0.02

Submit: TypeAlias = "Callable[[Callable[[], None]], object]"
"""The ``submit`` of an executor; raises ``RuntimeError`` if no thread can be started."""


class _NoLock:
    """Stands in for the condition variable of a future."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def wait(self, timeout: float | None) -> None:
        pass

    def notify_all(self) -> None:
        pass


_NO_LOCK = _NoLock()


class _Gate(WaitList):
    """The threads that wait for one future.

    :ivar listeners: the objects by which ``concurrent.futures.wait`` and ``as_completed`` wait
    """

    __slots__ = ("listeners",)

    def __init__(self) -> None:
        super().__init__()
        self.listeners = list[Any]()


class _Listeners:
    """Stands in for the list of these objects in a future.

    They have locks, which an exception in the waiting thread may leave acquired. So they are
    notified in a thread that nothing waits for.
    """

    def __init__(self, future: LockFreeFuture[Any]) -> None:
        self._future = future

    def append(self, listener: Any) -> None:
        self._future.gate.listeners.append(listener)
        if self._future.done():  # settled meanwhile, maybe without it
            _notify([self._future])

    def remove(self, listener: Any) -> None:
        with suppress(ValueError):  # it was notified
            self._future.gate.listeners.remove(listener)

    def __iter__(self) -> Iterator[Any]:  # the base class would notify each
        return iter(())


class LockFreeFuture(Future[Result]):
    """A :class:`concurrent.futures.Future` without a lock.

    A thread that begins to wait adds itself, then checks the state. The code that settles sets the
    state first.
    """

    _state = PENDING
    _result: Result | None = None
    _exception: BaseException | None = None
    _gate: _Gate | None = None

    def __init__(self) -> None:  # replaces that of the base, which creates a lock
        self._done_callbacks: list[Any] = []

    if not TYPE_CHECKING:  # attributes of the base class
        _condition = _NO_LOCK

        @property
        def _waiters(self) -> _Listeners:
            return _Listeners(self)

    @property
    def gate(self) -> _Gate:
        """The threads that wait for it."""
        gate = self._gate
        return self.__dict__.setdefault("_gate", _Gate()) if gate is None else gate

    def result(self, timeout: float | None = None) -> Result:
        """As in the base class; ``timeout`` is in seconds."""
        if not self.done():
            self.gate.wait_for(self.done, timeout)
        if self._state == FINISHED and self._exception is None:
            return cast("Result", self._result)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As in the base class; ``timeout`` is in seconds."""
        if not self.done():
            self.gate.wait_for(self.done, timeout)
        return super().exception(0)

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """As in the base class."""
        if not self.done():
            self._done_callbacks.append(fn)
            if not self.done():
                return
            try:
                self._done_callbacks.remove(fn)
            except ValueError:  # the settling thread calls it
                return
        super().add_done_callback(fn)  # calls it

    def _invoke_callbacks(self) -> None:
        """Called by the base class in a final state."""
        wake_waiting((self,))
        self._call()

    def _call(self) -> None:
        """Run the callbacks; one thread removes and calls each."""
        calls = self._done_callbacks
        while calls:
            try:
                call = calls.pop(0)
            except IndexError:  # another thread calls it
                break
            try:
                call(self)
            except Exception:  # noqa: BLE001  # logged, as in the base class
                LOGGER.exception("exception calling callback for %r", self)


def wake_waiting(futures: Iterable[LockFreeFuture[Any]]) -> None:
    """Wake the threads that wait for settled futures."""
    listened = list[LockFreeFuture[Any]]()
    for future in futures:
        gate = future._gate
        if gate is not None:
            gate.notify_all()
            if gate.listeners:
                listened.append(future)
    if listened:
        try:
            soon(partial(_notify, listened))
        except ThreadNotStarted:
            _notify(listened)


def _notify(futures: Iterable[LockFreeFuture[Any]]) -> None:
    """Notify ``concurrent.futures.wait`` and ``as_completed``; one thread removes each listener."""
    for future in futures:
        listeners = future.gate.listeners
        while listeners:
            try:
                listener = listeners.pop(0)
            except IndexError:
                break
            if future.cancelled():
                listener.add_cancelled(future)
            elif future._exception is not None:
                listener.add_exception(future)
            else:
                listener.add_result(future)


class ThreadTask(LockFreeFuture[Result]):
    """Work that runs once, in the thread that first calls :meth:`run`."""

    _runner: object = None

    def __init__(self, work: Callable[[], Result]) -> None:
        super().__init__()
        self._work = work

    @property
    def has_begun(self) -> bool:
        """Whether a thread runs it or has run it, or it was cancelled."""
        return self._runner is not None

    def run(self) -> None:
        """Run the work, unless a thread has begun it, or it was cancelled."""
        me = object()
        try:
            if self.__dict__.setdefault("_runner", me) is me:
                self.set_result(self._work())
        except BaseException as error:
            if self._runner is not me or self.done():  # of a signal handler
                raise
            self.set_exception(error)

    def cancel(self) -> bool:
        """Keep the work from running; ``False`` if a thread has begun it."""
        me = object()
        if self.__dict__.setdefault("_runner", me) is not me:
            return False
        self._state = CANCELLED_AND_NOTIFIED
        self._invoke_callbacks()
        return True


class Workers:
    """Threads that run submitted work in its order, and end when there is none.

    :param name: the name of the threads
    :param most: the largest number of threads
    """

    def __init__(self, name: str, most: int = 1) -> None:
        self._name = name
        self._most = most
        self._slots = deque(range(most))  # each thread that works has taken one
        self._works = deque[Callable[[], object]]()
        self._waits = WaitList()
        self._closed = False

    def submit(self, work: Callable[[], object]) -> None:
        """Run ``work``, which must not raise, in a thread.

        Raises ``RuntimeError`` after :meth:`shutdown`, and
        :class:`~lakelog.errors.ThreadNotStarted`; the work may run later then.
        """
        if self._closed:
            raise RuntimeError(f"{self._name} has ended")
        self._works.append(work)
        if self._slots:  # otherwise all threads look for work again before they end
            started(Thread(target=self._run, name=self._name, daemon=True))

    def _run(self) -> None:
        while self._works:
            try:
                slot = self._slots.popleft()
            except IndexError:
                return
            try:
                with suppress(IndexError):
                    while True:
                        self._works.popleft()()
            finally:
                self._slots.append(slot)
        self._waits.notify_all()

    def shutdown(self, *, cancel: bool = False) -> None:
        """Wait until all work is done; with ``cancel``, drop what has not begun."""
        self._closed = True
        if cancel:
            self._works.clear()
        self._run()  # what is left of a submission for which no thread could be started
        self._waits.wait_for(lambda: not self._works and len(self._slots) == self._most)


class Background:
    """Calls ``work`` in a thread soon after each :meth:`wake`; the first one starts the thread.

    :param work: must not raise
    """

    def __init__(self, name: str, work: Callable[[], object]) -> None:
        self._name = name
        self._work = work
        self._asked = LockFreeEvent()
        self._closing = False
        self._turn = [None]  # the thread that takes it is the one that works
        self._threads = list[Thread]()

    def wake(self) -> None:
        """Have ``work`` called; raises :class:`~lakelog.errors.ThreadNotStarted`."""
        if not self._threads and not self._closing:
            thread = Thread(target=self._run, name=self._name, daemon=True)
            self._threads.append(started(thread))
        self._asked.set()

    @property
    def is_running(self) -> bool:
        """Whether the thread works until :meth:`close`."""
        return bool(self._threads) and not self._closing

    @property
    def is_here(self) -> bool:
        """Whether this code runs in the thread."""
        here = get_ident()
        return any(each.ident == here for each in list(self._threads))

    def _run(self) -> None:
        try:
            self._turn.pop()
        except IndexError:  # a handler's or finalizer's `wake` has started another thread
            return
        self._threads.append(current_thread())  # an exception may have ended `wake`
        while not self._closing:
            self._asked.wait()
            if not self._closing:
                self._asked.clear()
                self._work()

    def close(self) -> None:
        """End the thread after its current call of ``work``."""
        self._closing = True
        self._asked.set()
        for each in list(self._threads):
            each.join()


_PATCHED: Final = {
    "gevent.monkey": ("is_module_patched", ("threading", "_thread", "queue")),
    "eventlet.patcher": ("is_monkey_patched", ("thread",)),
}
_WAYS_ON: Final = {
    "gevent.monkey": "patch_all(thread=False, queue=False)",
    "eventlet.patcher": "monkey_patch(thread=False)",
}


def check_interpreter() -> None:
    """Refuse an interpreter in which the store's threads and locks do not work.

    A greenlet that waits for another process stops all greenlets of its thread, among them those
    that took the place of the store's threads, so an open would never return. Locks and counters
    rely on the interpreter lock.

    Raises :class:`~lakelog.errors.StoreError`.
    """
    for name, (is_patched, kinds) in _PATCHED.items():
        module = sys.modules.get(name)
        found = [each for each in kinds if module and getattr(module, is_patched)(each)]
        if found:
            package = name.partition(".")[0]
            raise StoreError(
                f"{package} has replaced the standard library's {' and '.join(found)}, and without "
                f"real threads the store would wait for ever: call {package}'s {_WAYS_ON[name]}, "
                "or open the store in a process without it"
            )
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise StoreError(
            "this Python runs without its interpreter lock, on which the store's locks rely: "
            "start it with PYTHON_GIL=1 or -X gil=1, or use a build that is not free-threaded"
        )


def started(thread: AnyThread) -> AnyThread:
    """Start ``thread`` and return it.

    Store the returned thread only: one that never started cannot be joined. After an exception of a
    signal handler in here, the thread may run.

    Raises :class:`~lakelog.errors.ThreadNotStarted`; nothing runs then. Retry with a new thread.
    """
    begin = partial(thread._bootstrap)  # type: ignore[attr-defined]  # private: only its end shows that the thread had no memory
    vars(thread).update(_bootstrap=begin, _started=_Started(thread, ref(begin)))
    del begin
    try:
        if get_ident() == main_thread().ident:
            # Thread.start waits for an event of the new thread. An exception of a signal handler
            # leaves the event's lock acquired, and the new thread waits for it for ever.
            starting = ThreadTask(thread.start)
            run = partial(starting.run)
            begun = ref(run)
            start_new_thread(run, ())
            del run
            while not starting.done():
                with suppress(TimeoutError):
                    starting.result(_LOOK_SECONDS)
                if begun() is None and not starting.done():
                    raise MemoryError("the new thread had no memory for its first frame")
            starting.result()
        else:
            thread.start()
    except (RuntimeError, MemoryError) as error:
        raise ThreadNotStarted(thread.name, error) from error
    return thread


class _Started(Event):
    """The event for which ``Thread.start`` waits, without an end.

    A thread that has no memory for its first frame ends before it runs a line of Python. Then its
    first function is freed, and the event is not set.
    """

    def __init__(self, thread: Thread, begin: ref[Callable[[], None]]) -> None:
        super().__init__()
        self._thread: Thread | None = thread
        self._begin = begin

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the thread runs; raises ``MemoryError`` if it has ended before."""
        thread, self._thread = self._thread, None
        if thread is not None:
            vars(thread).pop("_bootstrap")  # from now on, only the new thread holds it
        while not super().wait(_LOOK_SECONDS if timeout is None else timeout):
            if timeout is not None:
                return False
            if self._begin() is None and not self.is_set():
                threading._limbo.pop(thread, None)  # type: ignore[attr-defined]  # private: start() would have removed it
                raise MemoryError("the new thread had no memory for its first frame")
        return True


def submitted(submit: Submit, name: str, work: Callable[[], Result]) -> ThreadTask[Result]:
    """Submit ``work`` to an executor, which may have to start a thread; return its future.

    :param name: name of the thread, for the error

    Raises :class:`~lakelog.errors.ThreadNotStarted`; ``work`` then never runs.
    """
    task = ThreadTask(work)
    try:
        submit(task.run)
    except (RuntimeError, MemoryError, ThreadNotStarted) as error:
        if task.cancel():  # false if a thread of the pool has taken it from the queue
            raise ThreadNotStarted(name, error) from error
    except BaseException:  # from a signal handler
        task.cancel()
        raise
    return task


def soon_done(submit: Submit, name: str, work: Callable[[], Result]) -> ThreadTask[Result]:
    """Like :func:`submitted`, but runs ``work`` in the caller if no thread can be started."""
    try:
        return submitted(submit, name, work)
    except ThreadNotStarted:
        task = ThreadTask(work)
        task.run()
        return task


class Shortage:
    """Logs a lack that a thread gets over by itself: once, and again after its end.

    The text is a clear sentence: what waits, and the error, which names the cause.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self.is_there = False

    def begin(self, error: Exception) -> None:
        """Note the lack; the caller tries again later."""
        if not self.is_there:
            self.is_there = True
            _LOG.warning(
                "%s, and tried again until it works: %s", self._what, str(error) or repr(error)
            )

    def end(self) -> None:
        """Note that the work was done."""
        if self.is_there:
            self.is_there = False
            _LOG.info("%s no longer", self._what)


async def in_thread(work: Callable[P, Result], *arguments: P.args, **named: P.kwargs) -> Result:
    """Like ``asyncio.to_thread``, but raises :class:`~lakelog.errors.ThreadNotStarted`."""
    import asyncio  # callers with an event loop have imported it already

    hand_over = partial(asyncio.get_running_loop().run_in_executor, None)
    call = partial(copy_context().run, partial(work, *arguments, **named))
    return await asyncio.wrap_future(submitted(hand_over, "asyncio", call))


def soon(act: Callable[[], object]) -> None:
    """Call ``act`` soon, in a thread of its own; starting it takes no Python lock.

    Raises :class:`~lakelog.errors.ThreadNotStarted`.
    """
    try:
        start_new_thread(act, ())
    except RuntimeError as error:
        raise ThreadNotStarted("lakelog-signal", error) from error


def is_inside() -> bool:
    """Whether a finalizer or a signal handler made this call inside of a call of lakelog.

    It is true in a thread of lakelog, too.
    """
    if current_thread().name.startswith("lakelog-"):
        return True
    is_outside = False
    frame: FrameType | None = sys._getframe(1)  # no public function gives the frames
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith("lakelog."):
            is_outside |= name != "contextlib" and not name.startswith("lakelog_")
        elif is_outside:
            return True
        frame = frame.f_back
    return False


_here = threading.local()


def never_wait() -> None:
    """Have the reads of this thread wait for no dispatching: it is an event loop that serves many.

    They find what is in queues and index already; its waiters are notified of the rest.
    """
    _here.never_waits = True


def may_wait() -> bool:
    """Whether reads of this thread may wait for dispatching."""
    return not getattr(_here, "never_waits", False)
