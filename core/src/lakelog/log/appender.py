"""Puts: encode, append, wait for flush and copies, return; without calls through pluggy.

Asynchronous puts are submitted in bursts, unless the flush strategy has ``submit_later``: one
thread waits once for all messages that were appended during its former wait.

The outcomes that strategies return after an append are checked. The messages are in the log by
then. An ordinary error would mislead: a caller that puts again after an error stores them twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, TypeAlias

import attrs

from lakelog.builtin import RocketmqAppendCallback
from lakelog.errors import (
    IllegalMessage,
    NotDurable,
    PutRefused,
    StoreFailed,
    StrategyFailed,
    ThreadNotStarted,
    raised_by_handler,
)
from lakelog.format.encoder import EncodedBatch
from lakelog.format.layout import BLANK_MIN_BYTES
from lakelog.hooks import AppendCallback, FlushStrategy, Outcome, Replicator, Settle
from lakelog.log.commit_log import CommitLog
from lakelog.log.health import Health
from lakelog.log.put_future import BatchFuture, Late, PutFuture, settle_appended, settle_new
from lakelog.message import Body, Message
from lakelog.results import PutResult, PutStatus
from lakelog.runtime.locks import WaitList
from lakelog.runtime.threads import Background

MAX_WAITING: Final = 65_536
"""The largest number of waiting messages; a further caller blocks."""


class AsyncPutQueue:
    """Collects puts while earlier ones are being submitted; thread-safe.

    :param submit: submits the end of the last put, and settles all; may block
    """

    def __init__(self, submit: Callable[[Sequence[PutFuture]], object]) -> None:
        self._submit = submit
        self._waiting: deque[PutFuture] = deque()
        self._room = WaitList()
        self._thread = Background("lakelog-put-async", self._submit_waiting)

    def put(self, future: PutFuture) -> None:
        """Add an appended put for the thread; if none can be started, submit the put here."""
        if self._is_crowded():
            self._room.wait_for(lambda: not self._is_crowded())
        self._waiting.append(future)
        with suppress(ThreadNotStarted):
            self._thread.wake()
        if not self._thread.is_running:  # looked at after the append, for a close meanwhile
            self._submit_waiting()

    def _is_crowded(self) -> bool:
        """Whether to wait for the thread; a callback in that thread cannot."""
        if len(self._waiting) < MAX_WAITING or not self._thread.is_running:
            return False
        return not self._thread.is_here

    def _submit_waiting(self) -> None:
        """Submit the collected puts; two threads never take the same one."""
        while burst := self._take():
            self._submit(burst)

    def _take(self) -> Sequence[PutFuture]:
        burst = list[PutFuture]()
        with suppress(IndexError):
            while True:
                burst.append(self._waiting.popleft())
        self._room.notify_all()
        return burst

    def serve(self, _: PutFuture) -> None:
        """Submit the collected puts here: a callback waits for one, maybe in the thread itself."""
        if burst := self._take():
            self._submit(burst)

    def close(self) -> None:
        """Submit the waiting puts, then stop."""
        self._thread.close()
        self._submit_waiting()


ErrorBuilder: TypeAlias = "Callable[[str], StrategyFailed]"
"""Builds the error that names a strategy and the fault."""

# Access to an enum member costs a tenth of a microsecond each time in Python 3.11.
_PUT_OK: Final = PutStatus.PUT_OK
_PENDING: Final = ("done", "result", "add_done_callback")


class NoOutcomeError(Exception):
    """Describes an invalid value returned in place of an outcome."""


def checked(given: Outcome) -> Outcome:
    """Return ``given`` if it is an outcome; raise :class:`NoOutcomeError` otherwise."""
    if type(given) is not PutStatus and not _is_pending(type(given)):
        raise NoOutcomeError(f"returned {given!r}, which is no PutStatus and no future of one")
    return given


@lru_cache(maxsize=64)
def _is_pending(kind: type) -> bool:
    return all(callable(getattr(kind, name, None)) for name in _PENDING)


def status_of(given: Outcome) -> PutStatus:
    """Wait for the status.

    Raises the error of the outcome, and :class:`NoOutcomeError` if it has no valid status.
    """
    if type(given) is PutStatus:
        status = given
    else:
        status = checked(given).result()  # type: ignore[union-attr]  # a PutStatus was seen above
        if type(status) is not PutStatus:
            raise NoOutcomeError(f"came to {status!r}, which is no PutStatus")
    if not status.in_log:
        raise NoOutcomeError(f"answered {status.name}, which is for messages not in the log")
    return status


class StrategyErrors(NamedTuple):
    """Builds the error for a strategy's fault.

    :ivar build: builds the error from its text
    :ivar status: for results of messages that lack only the strategy's guarantee
    :ivar missing: the sentence of the error about that guarantee
    """

    build: ErrorBuilder
    status: PutStatus
    missing: str

    def error(self, error: Exception, end_offset: int) -> Exception:
        """The error for a put whose records end at offset ``end_offset``.

        An error of a failed log passes unchanged, and so does an exception from a signal handler.
        """
        if isinstance(error, StoreFailed) or raised_by_handler(error):
            return error
        own = isinstance(error, NoOutcomeError)
        did = str(error) if own else f"raised {type(error).__name__}: {error}"
        failed = self.build(
            f"{did}; the messages are in the log all the same, before offset {end_offset}: do not "
            f"put them again. {self.missing}"
        )
        failed.status = self.status
        failed.__cause__ = None if own else error
        return failed


Answer: TypeAlias = "Callable[[PutStatus | Exception], object]"
"""Called with the status of an append, or with the error of the strategy that failed."""

Keys: TypeAlias = "str | Sequence[str] | None"


class Appender:
    """The writing half of a store.

    :ivar answers_at_once: whether no put waits for a sync or for copies
    """

    def __init__(
        self,
        log: CommitLog,
        callback: AppendCallback,
        flush: FlushStrategy,
        replicator: Replicator | None,
        health: Health,
        flush_failed: ErrorBuilder = StrategyFailed,
        replicator_failed: ErrorBuilder = StrategyFailed,
        *,
        raises_late: bool = True,
    ) -> None:
        """Store the collaborators.

        :param flush_failed: builds the error of a put whose ``flush`` raised after the append
        :param replicator_failed: the same for ``replicator``
        :param raises_late: whether a put raises that is not durable or not copied in time
        """
        self._log = log
        admit: Callable[[int], None] | None = getattr(replicator, "admit", None)
        self._encode = callback.encode
        self._flush = flush
        self._replicator = replicator
        self._health = health
        self._of_flush = StrategyErrors(
            flush_failed,
            PutStatus.FLUSH_DISK_TIMEOUT,
            "Whether they are durable is not known; Store.flush() makes them so",
        )
        self._of_replicator = StrategyErrors(
            replicator_failed, PutStatus.FLUSH_SLAVE_TIMEOUT, "Whether they are copied is not known"
        )
        self._putting = _putting(callback, log) if admit is None else None  # it cannot call admit
        append = log.append if self._putting is None else self._putting.append
        self._append = append if admit is None else partial(_append_admitted, log, admit)
        self.answers_at_once = _all_have("answers_at_once", flush, replicator)
        later = getattr(flush, "submit_later", None)
        at_once = _all_have("answers_at_once", replicator)
        self._submit_later: Callable[[PutFuture, Settle], None] | None = later if at_once else None
        wait = getattr(flush, "wait", None) if replicator is None else None
        self._wait_flushed: Callable[[int], PutStatus | None] = wait or (lambda _end: None)
        self._submitting = AsyncPutQueue(self._submit_burst)
        sync_ms = getattr(flush, "timeout_ms", None)
        copy_ms = getattr(replicator, "timeout_ms", None)
        self._late: Late | None = partial(_late_error, sync_ms, copy_ms) if raises_late else None
        self._settle: Callable[..., None] = partial(settle_appended, late=self._late)

    # --- one message ---

    def put(self, message: Message) -> PutResult:
        """Append one message, then wait for flush and copies.

        Raises :class:`~lakelog.errors.PutRefused` if the message is not in the log,
        :class:`~lakelog.errors.NotDurable` if it is but flush or copies are late,
        :class:`~lakelog.errors.StrategyFailed` if it is but a strategy failed, and
        :class:`~lakelog.errors.StoreFailed`.
        """
        result = self._appended(message)
        return result if self.answers_at_once else self._waited(result, message.wait_store_ok)

    def _appended(self, message: Message) -> PutResult:
        """Append one message; return its result without waiting for flush and copies."""
        if self._putting is not None:
            result = self._putting.put(message)
            if isinstance(result, PutResult):
                return result
            if type(result) is int:  # the chosen queue id
                message = attrs.evolve(message, queue_id=result)
        if self._health.refusal is not None:
            raise self._health.refused()
        try:
            batch = self._encode((message,))
        except IllegalMessage as error:
            raise PutRefused(error.status, str(error)) from None
        self._append(batch)
        return batch.results(_PUT_OK)[0]

    def bound(
        self, topic: str, tags: str | None, queue_id: int | None
    ) -> Callable[[Body, Keys], PutResult]:
        """Return a function that puts a message of ``topic`` from its body and keys.

        It is the fastest way for single messages.
        """
        put = None if self._putting is None else self._putting.bound(topic, tags, queue_id)
        waited = None if self.answers_at_once else self._waited

        def natively(body: Body, keys: Keys = None) -> PutResult:
            result = None if put is None else put(body, keys)
            if isinstance(result, PutResult):
                return result if waited is None else waited(result, True)
            queue = queue_id if result is None else result
            return self.put(Message(topic, body, tags, keys, None, queue))

        return natively

    def _waited(self, result: PutResult, wait: bool) -> PutResult:
        """Wait for flush and copies of an appended message; return ``result`` with its status."""

        def with_status(status: PutStatus) -> Sequence[PutResult]:
            result.status = status
            return [result]

        status = self._wait(result.end_offset, wait, with_status)
        if status is not _PUT_OK:
            result.status = status
            if self._late is not None:
                raise self._late(status, result)
        return result

    def _finish(self, batch: EncodedBatch) -> PutStatus:
        """Append, then wait for flush and copies."""
        return self._wait(self._append(batch), batch.wait, batch.results)

    def _wait(
        self, end: int, wait: bool, results: Callable[[PutStatus], Sequence[PutResult]]
    ) -> PutStatus:
        errors = self._of_flush
        copied: Outcome = _PUT_OK
        try:
            status_now = self._wait_flushed(end) if wait else None
            flushed = self._flush.submit(end, wait) if status_now is None else status_now
            if self._replicator is not None:
                errors = self._of_replicator
                copied = self._replicator.submit(end, wait)
                errors = self._of_flush
            status = flushed if flushed is _PUT_OK else status_of(flushed)
            if copied is not _PUT_OK:
                errors = self._of_replicator
                status = _combined(status, status_of(copied))
        except Exception as error:
            failed = _about(results, errors.error(error, end))
            if failed is error:
                raise
            raise failed from failed.__cause__
        return status

    # --- many messages ---

    def put_batch(self, messages: Sequence[Message]) -> Sequence[PutResult]:
        """Append many messages, in order, with one wait for all; raises as :meth:`put`.

        A batch larger than a segment is split, with one wait per piece.
        """
        return self._put_pieces(self._batches(messages))

    def _batches(self, messages: Sequence[Message]) -> Sequence[EncodedBatch]:
        if self._health.refusal is not None:
            raise self._health.refused()
        try:
            return list(self._encoded(messages)) if messages else []
        except IllegalMessage as error:
            raise PutRefused(error.status, str(error)) from None

    def _put_pieces(self, batches: Sequence[EncodedBatch]) -> Sequence[PutResult]:
        results: Sequence[PutResult] = []
        worst = _PUT_OK
        for batch in batches:
            try:
                status = self._finish(batch)
            except PutRefused as error:
                error.accepted = results
                raise
            except StrategyFailed as error:
                error.accepted = [*results, *error.accepted]
                raise
            done = batch.results(status)
            results = [*results, *done] if results else done
            worst = _combined(status, worst)
        if worst is not _PUT_OK and self._late is not None:
            raise self._late(worst, results)
        return results

    def _encoded(self, messages: Sequence[Message]) -> Iterator[EncodedBatch]:
        """Yield one batch, or several if one would not fit into a segment."""
        batch = self._encode(messages)
        if len(batch.buffer) + BLANK_MIN_BYTES <= self._log.segments.size_bytes or batch.count == 1:
            yield batch
            return
        half = len(messages) // 2
        yield from self._encoded(messages[:half])
        yield from self._encoded(messages[half:])

    # --- asynchronous puts ---

    def put_async(self, message: Message) -> PutFuture:
        """Append one message; the future receives the result or error of :meth:`put`."""
        if self._health.refusal is not None:
            raise self._health.refused()
        future = PutFuture()
        try:
            appended = future.appended = self._appended(message)
        except Exception as error:
            if raised_by_handler(error):
                raise
            future.set_exception(error)  # for a wrong argument too
            return future
        end = future.end_offset = appended.end_offset
        if self.answers_at_once:
            settle_new(future)
        elif not message.wait_store_ok:
            self._then(end, False, partial(self._settle, [future]))
        elif self._submit_later is None:
            self._submitting.put(future)
        else:
            try:
                self._submit_later(future, self._settle)
            except Exception as error:
                if raised_by_handler(error):  # the strategy may have it already
                    raise
                self._settle([future], self._of_flush.error(error, end))
        return future

    def put_batch_async(self, messages: Sequence[Message]) -> BatchFuture:
        """Append many messages now; the future receives the result or error of :meth:`put_batch`.

        If the batch must be split, this call blocks until all pieces have their outcome.
        """
        future = BatchFuture()
        try:
            batches = self._batches(messages)
            if len(batches) == 1:
                batch = batches[0]
                answer = partial(_hand_over, batch, future, self._late)
                self._then(self._append(batch), batch.wait, answer)
            else:
                future.set_result(self._put_pieces(batches))
        except Exception as error:
            if raised_by_handler(error):
                raise
            future.set_exception(error)  # for a wrong argument too
        return future

    def _submit_burst(self, burst: Sequence[PutFuture]) -> None:
        end = max(future.end_offset for future in burst)
        serve = self._submitting.serve
        self._then(end, True, partial(self._settle, burst, serve=serve))

    def _then(self, end: int, wait: bool, answer: Answer) -> None:
        """Submit an append that ended at ``end``; call ``answer`` once its outcome is known.

        ``answer`` receives the status, or the error of the flush strategy or replicator. It may be
        called in any thread, and must not block.
        """
        errors = self._of_flush
        try:
            outcomes = [checked(self._flush.submit(end, wait))]
            if self._replicator is not None:
                errors = self._of_replicator
                outcomes.append(checked(self._replicator.submit(end, wait)))
        except Exception as error:  # noqa: BLE001  # from a plugin or a signal handler; the bytes are in the log, so it is their outcome
            answer(errors.error(error, end))
            return
        finish = partial(self._answer, answer, end)
        if len(outcomes) == 1 and not isinstance(outcomes[0], PutStatus):
            outcomes[0].add_done_callback(finish)
        else:
            _when_all(outcomes, finish)

    def _answer(self, answer: Answer, end: int, flushed: Outcome, *copied: Outcome) -> None:
        """Call ``answer``: all outcomes are known."""
        status: PutStatus | Exception
        errors = self._of_flush
        try:
            status = status_of(flushed)
            for outcome in copied:
                errors = self._of_replicator
                status = _combined(status, status_of(outcome))
        except Exception as error:  # noqa: BLE001  # from a plugin or a signal handler; passed to the answer below
            status = errors.error(error, end)
        answer(status)

    # --- end ---

    def flush(self) -> int:
        """Make everything appended before the call durable; return the durable end.

        Raises :class:`~lakelog.errors.StoreFailed`.
        """
        return self._log.sync()

    def sync(self) -> bool:
        """Make everything appended before the call durable; no sync if it is.

        :returns: ``False`` in a signal handler that interrupted a sync of its own thread

        Raises :class:`~lakelog.errors.StoreFailed`.
        """
        end = self._log.syncable
        return self._log.sync() >= end

    def close(self) -> None:
        """Settle the asynchronous puts, refuse further ones, and close the strategies.

        Raises the errors of the strategies.
        """
        self._submitting.close()
        self._health.refuse("the store is closed")
        self._log.settle()
        try:
            self._flush.close()
        finally:
            if self._replicator is not None:
                self._replicator.close()


Appender.put.__qualname__ = "Store.put"
"""A store's ``put`` is this function itself; Python's errors of its arguments show this name."""


def _append_admitted(log: CommitLog, admit: Callable[[int], None], batch: EncodedBatch) -> int:
    if batch.wait:
        admit(len(batch.buffer))
    return log.append(batch)


def _hand_over(
    batch: EncodedBatch, future: BatchFuture, late: Late | None, outcome: PutStatus | Exception
) -> None:
    if not isinstance(outcome, PutStatus):
        future.set_exception(_about(batch.results, outcome))
    elif outcome is _PUT_OK or late is None:
        future.set_result(batch.results(outcome))
    else:
        future.set_exception(late(outcome, batch.results(outcome)))


def _late_error(
    sync_ms: float | None, copy_ms: float | None, status: PutStatus, result: Any
) -> NotDurable:
    """The error of a put that would return ``result``; the limits are those of its strategies."""
    of_sync = status is PutStatus.FLUSH_DISK_TIMEOUT
    return NotDurable(status, result, sync_ms if of_sync else copy_ms)


def _about(results: Callable[[PutStatus], Sequence[PutResult]], error: Exception) -> Exception:
    """Return ``error``; a ``StrategyFailed`` gets the results of the messages in the log."""
    return error.of(results(error.status)) if isinstance(error, StrategyFailed) else error


def _putting(callback: AppendCallback, log: CommitLog) -> Any:
    """The compiled put of one message, if records have lakelog's own encoding."""
    if type(callback) is not RocketmqAppendCallback or callback.accelerator is None:
        return None
    return None if log.staged else callback.accelerator.putting(callback.encoder, log)


def _all_have(trait: str, *strategies: FlushStrategy | Replicator | None) -> bool:
    """Whether all given strategies have the attribute ``trait`` set to true."""
    return all(getattr(each, trait, False) for each in strategies if each is not None)


def _combined(flush: PutStatus, replica: PutStatus) -> PutStatus:
    """The worse of two statuses; if both are bad, the replica's, as in RocketMQ."""
    return flush if replica is PutStatus.PUT_OK else replica


def _when_all(outcomes: Sequence[Outcome], finish: partial[None]) -> None:
    """Call ``finish`` with ``outcomes`` once all are known, in any thread."""
    for outcome in outcomes:
        if not isinstance(outcome, PutStatus) and not outcome.done():
            outcome.add_done_callback(lambda _: _when_all(outcomes, finish))
            return
    finish(*outcomes)
