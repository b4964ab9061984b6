"""Puts: encode, append, wait for flush and copies, confirm, answer. Nothing of pluggy in here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from lakelog.coalesce import Burst, Coalescer, fail_all
from lakelog.codec.encoded import EncodedBatch
from lakelog.commitlog import CommitLog
from lakelog.errors import IllegalMessage, LakelogError, PutRefused, StoreFailed
from lakelog.health import Health
from lakelog.interfaces import AppendCallback, FlushStrategy, Outcome, Replicator
from lakelog.layout import BLANK_MIN_BYTES
from lakelog.message import Message
from lakelog.positions import Confirmations
from lakelog.putfuture import PutFuture, settle
from lakelog.results import PutResult
from lakelog.status import PutStatus

_OF_ONE_MESSAGE = frozenset(
    {
        PutStatus.MESSAGE_SIZE_EXCEEDED,
        PutStatus.PROPERTIES_SIZE_EXCEEDED,
        PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED,
    }
)
"""Refusals inside the append lock that are one message's fault."""


class Appender:
    """The writing half of a store."""

    def __init__(
        self,
        log: CommitLog,
        confirmations: Confirmations,
        callback: AppendCallback,
        flush: FlushStrategy,
        replicator: Replicator | None,
        health: Health,
    ) -> None:
        self._log = log
        self._append = log.append
        self._confirm = confirmations.end
        self._encode = callback.encode
        self._flush = flush
        self._replicator = replicator
        self._health = health
        self._coalescer = Coalescer(self._put_burst, direct=_later(flush, replicator))

    # --- one message ---

    def put(self, message: Message) -> PutResult:
        """Append one message and wait for what the strategies promise."""
        if self._health.refusal is not None:
            raise self._health.refused()
        try:
            batch = self._encode((message,))
        except IllegalMessage as error:
            raise PutRefused(error.status, str(error)) from None
        return batch.results(self._finish(self._append(batch), batch.wait))[0]

    def _finish(self, end: int, wait: bool) -> PutStatus:
        """Wait for flush and copies; whatever comes, the put then has its result."""
        try:
            status = self._flush.submit(end, wait)
            if type(status) is not PutStatus:
                status = _await(status)
            if self._replicator is not None:
                status = _combined(status, _await(self._replicator.submit(end, wait)))
            return status
        finally:
            self._confirm(end)

    # --- many messages ---

    def put_batch(self, messages: Sequence[Message]) -> Sequence[PutResult]:
        """Append many messages, in order, and wait once for all of them."""
        if self._health.refusal is not None:
            raise self._health.refused()
        if not messages:
            return []
        try:
            batches = list(self._encoded(messages))
        except IllegalMessage as error:
            raise PutRefused(error.status, str(error)) from None
        if len(batches) == 1:
            batch = batches[0]
            return batch.results(self._finish(self._append(batch), batch.wait))
        return self._put_pieces(batches)

    def _put_pieces(self, batches: Sequence[EncodedBatch]) -> list[PutResult]:
        results: list[PutResult] = []
        for batch in batches:
            try:
                end = self._append(batch)
            except PutRefused as error:
                error.accepted = results
                raise
            results += batch.results(self._finish(end, batch.wait))
        return results

    def _encoded(self, messages: Sequence[Message]) -> Iterator[EncodedBatch]:
        """One batch; or several, where one would not fit into a segment."""
        batch = self._encode(messages)
        if len(batch.buffer) + BLANK_MIN_BYTES <= self._log.segments.size_bytes or batch.count == 1:
            yield batch
            return
        half = len(messages) // 2
        yield from self._encoded(messages[:half])
        yield from self._encoded(messages[half:])

    # --- asynchronous puts ---

    def put_async(self, message: Message) -> PutFuture:
        """Queue one message; the future gets what :meth:`put` would return or raise."""
        if self._health.refusal is not None:
            raise self._health.refused()
        return self._coalescer.put(message)

    def _put_burst(self, burst: Burst) -> None:
        try:
            batches = list(self._encoded([message for message, _ in burst]))
        except IllegalMessage as error:
            self._put_singly(burst, PutRefused(error.status, str(error)))
            return
        except Exception as error:  # noqa: BLE001  # what is no message is the caller's to hear of
            self._put_singly(burst, error)
            return
        done = 0
        for batch in batches:
            self._put_encoded(batch, burst[done : done + batch.count])
            done += batch.count

    def _put_singly(self, burst: Burst, error: Exception) -> None:
        """One of the messages is refused: the others must not suffer."""
        if len(burst) == 1:
            fail_all([burst[0][1]], error)
            return
        for each in burst:
            self._put_burst([each])

    def _put_encoded(self, batch: EncodedBatch, burst: Burst) -> None:
        futures = [future for _, future in burst]
        try:
            end = self._append(batch)
        except PutRefused as error:
            if error.status in _OF_ONE_MESSAGE:
                self._put_singly(burst, error)
            else:
                fail_all(futures, error)
            return
        except LakelogError as error:
            fail_all(futures, error)
            return
        finish = partial(self._answer, batch, end, futures)
        try:
            outcome = self._flush.submit(end, batch.wait)
            outcomes = [outcome]
            if self._replicator is not None:
                outcomes.append(self._replicator.submit(end, batch.wait))
        except StoreFailed as error:
            self._confirm(end)
            fail_all(futures, error)
            return
        if self._replicator is None and not isinstance(outcome, PutStatus):
            outcome.add_done_callback(finish)
        else:
            _when_all(outcomes, finish)

    def _answer(
        self,
        batch: EncodedBatch,
        end: int,
        futures: Sequence[PutFuture],
        flushed: Outcome,
        *copied: Outcome,
    ) -> None:
        """Every outcome is known: confirm, and hand out the results."""
        try:
            status = _await(flushed)
            for outcome in copied:
                status = _combined(status, _await(outcome))
        except LakelogError as error:
            self._confirm(end)
            fail_all(futures, error)
            return
        self._confirm(end)
        settle(futures, batch.results(status))

    # --- end ---

    def close(self) -> None:
        """Append and flush what is left; raises what the strategies raise."""
        self._coalescer.close()
        self._health.refuse("the store is closed")
        self._log.settle()
        try:
            if self._replicator is not None:
                self._replicator.close()
        finally:
            self._flush.close()


def _later(flush: FlushStrategy, replicator: Replicator | None) -> bool:
    """Whether to hand an append to the strategies takes no time, and their answer does."""
    used = [each for each in (flush, replicator) if each is not None]
    return all(getattr(each, "answers_later", False) for each in used)


def _await(outcome: Outcome) -> PutStatus:
    return outcome if isinstance(outcome, PutStatus) else outcome.result()


def _combined(flush: PutStatus, replica: PutStatus) -> PutStatus:
    """The worse of two; where both are bad, the copy's, as in RocketMQ."""
    return flush if replica is PutStatus.PUT_OK else replica


def _when_all(outcomes: Sequence[Outcome], finish: partial[None]) -> None:
    """Call ``finish`` with ``outcomes`` once each is known, in whatever thread that is."""
    for outcome in outcomes:
        if not isinstance(outcome, PutStatus) and not outcome.done():
            outcome.add_done_callback(lambda _: _when_all(outcomes, finish))
            return
    finish(*outcomes)
