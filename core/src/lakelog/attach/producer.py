"""Puts from a process beside the owner: encoded here, appended there.

The verbs are those of :class:`~lakelog.appender.Appender`, and so are their results and errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final
from uuid import uuid4

from lakelog.attach.call import Call, Then
from lakelog.attach.commits import asked_for
from lakelog.attach.heir import Heir, OnLost
from lakelog.attach.hello import Welcome
from lakelog.attach.line import CLOSED, Line, Moved
from lakelog.attach.successors import Successors
from lakelog.attach.watch import Watch
from lakelog.bursts import Bursts
from lakelog.coalesce import Burst, Coalescer, fail_all
from lakelog.codec.encoder import Encoder
from lakelog.codec.limits import Limits
from lakelog.codec.offer import Offer
from lakelog.codec.queuechoice import RoundRobin
from lakelog.errors import (
    IllegalMessage,
    LakelogError,
    PutRefused,
    StoreClosed,
    StoreError,
    StoreFailed,
)
from lakelog.forks import tell_of_forks
from lakelog.layout import BLANK_MIN_BYTES
from lakelog.message import Message
from lakelog.putfuture import BatchFuture, PutFuture, begin, settle
from lakelog.results import PutResult
from lakelog.status import PutStatus

FORKED: Final = "this process was forked from the one that is attached; attach it by itself"


def connect(path: Path, *, timeout_ms: int = 30_000, on_lost: OnLost | None = None) -> Producer:
    """Attach to the owner of the store directory ``path``.

    :param timeout_ms: how long puts wait for a successor once the owner is gone
    :param on_lost: asked when the owner is gone, whether this process becomes the owner

    Raises :class:`~lakelog.errors.NoOwner` and :class:`~lakelog.errors.AttachRefused`.
    """
    return Producer(path, timeout_ms, on_lost)


class Producer:
    """A producer beside the owner of a store; made by :func:`connect`. Its threads share it.

    :ivar settings: what the owner said of itself
    :ivar refusal: why puts are refused, or ``None`` while they are taken
    """

    def __init__(self, path: Path, timeout_ms: int, on_lost: OnLost | None) -> None:
        self.path = path
        self.refusal: str | None = None
        successors = Successors(path, uuid4().hex, timeout_ms, on_lost, self._learn)
        link = successors.first()
        self._learn(link.welcome)
        self._line = Line(link, successors.next, self._hand_over)
        self._watch = Watch(self._line.wait)
        self._coalescer = Coalescer(
            Bursts(self._offers, self._put_portion).put, direct=True, answers=self._line.is_looking
        )
        tell_of_forks(self)

    def _learn(self, welcome: Welcome) -> None:
        """Encode as this owner wants it."""
        self.settings = welcome
        limits = Limits.of(welcome.max_message_size_bytes, welcome.segment_size_bytes)
        queues = RoundRobin(welcome.queues_per_topic)
        self._encode = Encoder(
            limits, welcome.store_host, welcome.record_crc, welcome.max_light_queues, queues
        ).encode

    @property
    def owner_pid(self) -> int:
        """The process of the owner, or of the one that is gone."""
        return self.settings.pid

    def _hand_over(self, heir: Heir) -> None:
        """This process is the owner: what comes goes there, behind what was queued here before."""
        self._coalescer.hand_over(heir.appender.put_async, heir.settled)

    # --- one message, many messages ---

    def put(self, message: Message) -> PutResult:
        """Append one message and wait for what the owner's strategies promise.

        Raises :class:`~lakelog.errors.PutRefused`, :class:`~lakelog.errors.StoreFailed`, and
        :class:`~lakelog.errors.OutcomeUnknown` when the owner died and no other one came.
        """
        self._check()
        try:
            return self._put(self._offer((message,)))[0]
        except IllegalMessage as error:
            raise PutRefused(error.status, str(error)) from None
        except Moved as moved:
            return moved.heir.appender.put(message)

    def _put(self, offer: Offer) -> Sequence[PutResult]:
        call = Call(offer)
        self._line.put(call)
        self._line.wait(call)
        return call.results()

    def put_batch(self, messages: Sequence[Message]) -> Sequence[PutResult]:
        """Append many messages, in order, and wait once for all of them."""
        self._check()
        if not messages:
            return []
        try:
            offers = list(self._offers(messages))
        except IllegalMessage as error:
            raise PutRefused(error.status, str(error)) from None
        done: list[PutResult] = []
        for offer in offers:
            try:
                results = self._put(offer)
            except Moved as moved:
                return [*done, *moved.heir.appender.put_batch(messages[len(done) :])]
            except PutRefused as error:
                error.accepted = [*done, *error.accepted]
                raise
            if len(offers) == 1:
                return results
            done += results
        return done

    def _offer(self, messages: Sequence[Message]) -> Offer:
        return self._encode(messages).offer()

    def _offers(self, messages: Sequence[Message]) -> Iterator[Offer]:
        """One; or several, where one would not fit into a segment, or into the ring."""
        from lakelog.ring.offer import needed_bytes

        offer = self._offer(messages)
        if offer.count == 1 or (
            len(offer.records) + BLANK_MIN_BYTES <= self.settings.segment_size_bytes
            and needed_bytes(offer) <= self._line.link.writer.largest_bytes
        ):
            yield offer
            return
        half = len(messages) // 2
        yield from self._offers(messages[:half])
        yield from self._offers(messages[half:])

    # --- in the background ---

    def put_async(self, message: Message) -> PutFuture:
        """Queue one message; the future gets what :meth:`put` would return or raise."""
        self._check()
        return self._coalescer.put(message)

    def put_batch_async(self, messages: Sequence[Message]) -> BatchFuture:
        """Put a batch into the ring; the future gets what :meth:`put_batch` would return or raise.

        The next batch can be encoded meanwhile. Batches are appended in the order of the calls.
        """
        self._check()
        future = BatchFuture()
        begin(future)
        try:
            self._begin_batch(messages, future)
        except IllegalMessage as error:
            future.set_exception(PutRefused(error.status, str(error)))
        except Moved as moved:
            return moved.heir.appender.put_batch_async(messages)
        except LakelogError as error:
            future.set_exception(error)
        return future

    def _begin_batch(self, messages: Sequence[Message], future: BatchFuture) -> None:
        offers = list(self._offers(messages)) if messages else []
        if len(offers) != 1:
            future.set_result(self.put_batch(messages))
            return
        self._put_later(offers[0], partial(_tell, future))

    def _put_later(self, offer: Offer, then: Then) -> None:
        call = Call(offer, then)
        self._line.put(call)
        self._watch.add(call)

    def _put_portion(self, offer: Offer, burst: Burst) -> None:
        futures = [future for _, future in burst]
        try:
            self._put_later(offer, partial(self._hand_out, burst))
        except Moved as moved:
            moved.heir.appender.put_burst(burst)
        except LakelogError as error:
            fail_all(futures, error)

    def _hand_out(self, burst: Burst, call: Call) -> None:
        futures = [future for _, future in burst]
        try:
            settle(futures, call.results())
        except LakelogError as error:
            fail_all(futures, error)

    # --- the rest ---

    def flush(self) -> int:
        """Make durable what was appended before; the end of what is durable.

        Raises :class:`~lakelog.errors.StoreFailed`.
        """
        self._check()
        try:
            heard = self._line.ask({"ask": "flush"})
        except Moved as moved:
            return moved.heir.appender.flush()
        if "failed" in heard:
            raise StoreFailed(str(heard["failed"]))
        return int(heard["flushed"])

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Let the owner keep the next offset of some queues; it has when this returns.

        What an owner that died did not answer, its successor is asked again. The offsets of very
        many queues go in portions.

        Raises :class:`~lakelog.errors.StoreError`; then some may be kept, and it can be tried
        again.
        """
        if self.refusal is not None:
            raise StoreClosed(self.refusal)
        for what in asked_for(group, topic, offsets):
            try:
                self._check()
                heard = self._line.ask(what)
            except Moved as moved:
                moved.heir.offsets.commit(group, topic, offsets)
                return
            except PutRefused as error:
                raise StoreError(f"these offsets may not be kept; commit again: {error}") from error
            if "failed" in heard:
                raise StoreError(str(heard["failed"]))

    def _check(self) -> None:
        if self.refusal is not None:
            raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, self.refusal)
        if self._line.dropped is not None:
            self._line.attach_anew()

    def close(self) -> None:
        """Let everything that is open be settled, then detach."""
        self._coalescer.close()
        if self.refusal is None:
            self.refusal = CLOSED
            self._line.close()
            self._watch.close()

    def forked(self) -> None:
        """In a forked child: the connection is the parent's, and the threads are not there."""
        self.refusal = FORKED
        self._line.forked()


def _tell(future: BatchFuture, call: Call) -> None:
    try:
        future.set_result(call.results())
    except LakelogError as error:
        future.set_exception(error)
