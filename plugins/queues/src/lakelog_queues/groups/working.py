"""A worker of a pool: handles the messages of a group by a function, plain or asynchronous.

It takes one message (or one batch) at a time, so that a death of the process counts as an attempt
of that one alone. A thread of it renews what is in work, and ends the process after the time limit.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import multiprocessing
import os
import time
from collections.abc import Callable, Mapping, MutableSequence, Sequence
from contextlib import ExitStack
from importlib import import_module
from multiprocessing.connection import wait
from operator import attrgetter
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from lakelog.arguments import (
    WrongType,
    WrongValue,
    listed,
    span_ms,
    topic_name,
    whole,
    wrong_type,
)
from lakelog.errors import SettingsError
from lakelog.runtime.locks import LockFreeEvent, Mutex
from lakelog.runtime.threads import in_thread, started
from lakelog_queues.consumers.offsettable import check_group

if TYPE_CHECKING:
    from lakelog import Delivery, Store, StoredMessage

Handle: TypeAlias = "Callable[[Any], object] | str"
"""A function of a message, or of a list of them; or ``module:function``, which names it."""
CONCURRENCY: Final = 16
"""Number of messages that an asynchronous function handles at a time in each worker."""
TIMED_OUT: Final = 124
"""Exit code of a worker that ended itself after the time limit; as of timeout(1)."""
_NAP_MS: Final = 500
_IDLE_MS: Final = 5_000
"""A worker that is busy for so long leaves its queues to others until it polls again."""
HANDLED: Final = 0
FAILED: Final = 1
SPAWN: Final = multiprocessing.get_context("spawn")
_log = logging.getLogger("lakelog")


@attrs.frozen(kw_only=True)
class WorkOptions:
    """What the workers of a pool do; see ``Store.work``.

    :ivar subscription: further arguments of ``Store.subscribe``
    """

    group: str
    topics: str | Sequence[str] | Mapping[str, str | None]
    batch: int | None
    concurrency: int | None
    invisible_ms: float
    time_limit_ms: float | None
    stop_timeout_ms: float
    until_empty: bool = attrs.field(converter=bool)
    subscription: Mapping[str, Any]

    def __attrs_post_init__(self) -> None:
        for name in ("batch", "concurrency"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), 1)
        check_group(self.group)
        if not isinstance(self.topics, str):
            listed("topics", self.topics, "a topic, a list of topics, or a mapping to their tags")
        for each in self.topic_names:
            topic_name(each)
        span_ms("stop_timeout_ms", self.stop_timeout_ms)
        spans = {"invisible_ms": self.invisible_ms, "time_limit_ms": self.time_limit_ms}
        for name, span in spans.items():
            if (span is not None or name == "invisible_ms") and span_ms(name, span) < 1:
                raise WrongValue(f"{name} is {span}; give 1 or more")
        if self.subscription.get("broadcast") is not None:
            raise SettingsError("workers share the messages; leave it out", key="broadcast")

    @property
    def topic_names(self) -> tuple[str, ...]:
        """The topics, without their tags."""
        return (self.topics,) if isinstance(self.topics, str) else tuple(self.topics)


def imported(name: str) -> Callable[[Any], object]:
    """The function that ``module:function`` names; raises :class:`WrongValue`."""
    module, _, function = name.partition(":")
    if not (module and function):
        raise WrongValue(f"{name!r} is not MODULE:FUNCTION, such as 'tasks:bill'")
    try:
        found = attrgetter(function)(import_module(module))
    except (ImportError, AttributeError) as error:
        raise WrongValue(f"the function {name!r} cannot be imported: {error}") from error
    return _checked(found)


def function_of(handle: Any) -> Callable[[Any], object]:
    """The function that is given or named; raises :class:`WrongType` and :class:`WrongValue`."""
    return imported(handle) if isinstance(handle, str) else _checked(handle)


def _checked(handle: Any) -> Callable[[Any], object]:
    if not callable(handle):
        raise wrong_type("handle", handle, "a function of a message, or its name 'module:function'")
    return handle  # type: ignore[no-any-return]  # it can be called


# --- a worker ----------------------------------------------------------------------------------


@attrs.define(eq=False)
class _Work:
    """Messages that a function handles now.

    :ivar renew_s: when they are renewed next, as :func:`_now_s`
    :ivar end_s: when the process ends if they are still in work; ``None`` is never
    """

    deliveries: Sequence[Delivery]
    renew_s: float
    end_s: float | None


def _now_s() -> float:
    """Seconds of the clock that invisible times follow: nobody sets it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Worker:
    """A member of the group that handles messages, until it is told to stop.

    :param counts: the numbers of handled and failed messages, which it increments
    :param stopping: set to end after the messages in work
    :param may_end: whether this process may end if a function takes too long
    """

    def __init__(
        self,
        store: Store,
        handle: Callable[[Any], Any],
        options: WorkOptions,
        counts: MutableSequence[int],
        stopping: LockFreeEvent,
        *,
        may_end: bool,
    ) -> None:
        self._handle, self._options, self._counts = handle, options, counts
        self._stopping = stopping
        self._is_async = any(
            map(inspect.iscoroutinefunction, (handle, getattr(handle, "__call__", None)))  # noqa: B004  # an object with an asynchronous __call__
        )
        if options.concurrency is not None and not self._is_async:
            raise SettingsError(
                "it is for an 'async def'; a plain function handles one message at a time in "
                "each worker",
                key="concurrency",
            )
        limit_ms = options.time_limit_ms
        self._limit_s = None if limit_ms is None else limit_ms / 1000
        # A function that blocks the event loop cannot be cancelled; it gets twice the time.
        end_s = None if self._limit_s is None else self._limit_s * (2 if self._is_async else 1)
        self._end_s = end_s if may_end else None
        self._renew_s = options.invisible_ms / 3000
        self._in_work = dict[int, _Work]()
        self._counting = Mutex()
        with ExitStack() as opened:
            self._consumer = opened.enter_context(
                store.subscribe(
                    options.group,
                    options.topics,
                    invisible_ms=round(options.invisible_ms),
                    **{"idle_ms": _IDLE_MS, **options.subscription},
                )
            )
            self._over, over = SPAWN.Pipe(duplex=False)
            opened.callback(self._over.close)
            watch = started(Thread(target=self._watch, name="lakelog-work", daemon=True))
            opened.callback(watch.join)
            opened.callback(over.close)
            self._ends = opened.pop_all()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()  # messages that were not begun are visible to others at once

    def serve(self, on_turn: Callable[[], object] = lambda: None) -> None:
        """Handle messages until told to stop; calls ``on_turn`` between them."""
        if self._is_async:
            asyncio.run(self._serve_async(on_turn))
            return
        while not self._stopping.is_set():
            found = self._polled(self._options.batch or 1)
            if found:
                self._run(found)
            on_turn()

    def _polled(self, most: int) -> list[Delivery]:
        """Poll; what comes after the stop is left to others."""
        found = self._consumer.poll(most, _NAP_MS)
        if not found and self._options.until_empty:
            self._consumer.commit()  # the pool looks at committed offsets
        return [] if self._stopping.is_set() else found

    def _run(self, found: Sequence[Delivery]) -> None:
        work = self._begun(found)
        try:
            _refuse_awaitable(self._handle(self._argument(found)))
        except (Exception, SystemExit) as error:
            self._return(work, error)
            if isinstance(error, SystemExit):
                raise
        else:
            self._finish(work)

    async def _serve_async(self, on_turn: Callable[[], object]) -> None:
        size, most = self._options.batch or 1, self._options.concurrency or CONCURRENCY
        running = set[asyncio.Task[None]]()
        async with asyncio.TaskGroup() as tasks:
            while not self._stopping.is_set():
                if len(running) < most:
                    found = await in_thread(self._polled, (most - len(running)) * size)
                    for first in range(0, len(found), size):
                        task = tasks.create_task(self._run_async(found[first : first + size]))
                        running.add(task)
                        task.add_done_callback(running.discard)
                else:
                    first_done = asyncio.FIRST_COMPLETED
                    await asyncio.wait(running, timeout=_NAP_MS / 1000, return_when=first_done)
                await in_thread(on_turn)

    async def _run_async(self, found: Sequence[Delivery]) -> None:
        work = self._begun(found)
        try:
            async with asyncio.timeout(self._limit_s):
                await self._handle(self._argument(found))
        except (Exception, SystemExit) as error:
            await in_thread(self._return, work, error)
            if isinstance(error, SystemExit):
                raise
        else:
            await in_thread(self._finish, work)

    def _argument(self, found: Sequence[Delivery]) -> Any:
        messages = [_message(each) for each in found]
        return messages[0] if self._options.batch is None else messages

    # --- outcomes ---

    def _begun(self, found: Sequence[Delivery]) -> _Work:
        now_s = _now_s()
        end_s = None if self._end_s is None else now_s + self._end_s
        work = _Work(found, now_s + self._renew_s, end_s)
        self._in_work[id(work)] = work
        return work

    def _count(self, what: int, work: _Work) -> None:
        with self._counting:
            self._counts[what] += len(work.deliveries)

    def _finish(self, work: _Work) -> None:
        if self._in_work.pop(id(work), None) is None:  # it took too long; the process ends
            return
        if not self._consumer.ack(*work.deliveries):
            _log.warning("%s was late: others may handle it again", _named(work.deliveries))
        self._count(HANDLED, work)

    def _return(self, work: _Work, error: BaseException | None) -> bool:
        """Return messages whose function raised ``error``, or takes too long.

        :returns: whether they were in work
        """
        if self._in_work.pop(id(work), None) is None:
            return False
        what = "its function takes too long" if error is None else type(error).__name__
        _log.error("%s failed: %s", _named(work.deliveries), what, exc_info=error)
        for each in work.deliveries:
            self._consumer.nack(each)
        self._count(FAILED, work)
        return True

    # --- beside the function ---

    def _watch(self) -> None:
        """Renew what is in work until the worker ends; stop it if its parent process ends."""
        parent = multiprocessing.parent_process()
        ends: list[Any] = [self._over, *([] if parent is None else [parent.sentinel])]
        step_s = min(self._renew_s / 2, 1.0, *([] if self._end_s is None else [self._end_s / 4]))
        orphan_s = math.inf
        while self._over not in (ended := wait(ends, step_s)):
            if ended:
                ends = [self._over]
                orphan_s = _now_s() + self._options.stop_timeout_ms / 1000
                self._stopping.set()
            elif _now_s() >= orphan_s:
                os._exit(1)
            for work in list(self._in_work.values()):
                try:
                    self._look(work)
                except Exception as error:  # noqa: BLE001  # the next renewal may succeed
                    _log.error("%s cannot be renewed: %s", _named(work.deliveries), error)

    def _look(self, work: _Work) -> None:
        now_s = _now_s()
        if work.end_s is not None and now_s >= work.end_s and self._return(work, None):
            os._exit(TIMED_OUT)
        if now_s >= work.renew_s:
            work.renew_s = now_s + self._renew_s
            for each in work.deliveries:
                if not self._consumer.renew(each) and id(work) in self._in_work:
                    _log.warning("%s is in work too late: others may have it", _named([each]))
                    work.renew_s = math.inf


def _message(delivery: Delivery) -> StoredMessage:
    """The message; a retry under the topic to which it was put, as RocketMQ's clients have it."""
    message, topic = delivery.message, delivery.origin_topic
    return message if topic == message.topic else attrs.evolve(message, topic=topic)


def _refuse_awaitable(result: object) -> None:
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise WrongType(
            "the function returned an awaitable, which did not run: make it an 'async def'"
        )


def _named(deliveries: Sequence[Delivery]) -> str:
    first, more = deliveries[0], len(deliveries) - 1
    text = f"message {first.queue_offset} of queue {first.queue_id} of topic {first.topic}"
    text += f" ({first.message.message_id}, attempt {first.attempt})"
    return f"{text} and {more} more" if more else text
