"""Spans around puts, around the work of a consumer, and of many messages at once.

These are a run that was dispatched, and a range of the log that landed. Such a span is no child of
the puts, which are thousands: it has links to their spans.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode

import lakelog
from lakelog import LogStore, Message, PutResult, StoredMessage, errors
from lakelog.format.properties import decode_properties

if TYPE_CHECKING:
    from lakelog.format.record_batch import RecordBatch

SYSTEM: Final = "lakelog"
"""The value of ``messaging.system``, and the name of the tracer."""


@attrs.frozen
class TracedStore:
    """Puts messages with a span each, whose context is in the message.

    What is no message is left to the store, which raises its own error.

    :ivar store: the store that puts them
    """

    store: LogStore

    def put(self, message: Message) -> PutResult:
        """As :meth:`lakelog.Store.put`; the span ends when it returns."""
        if not isinstance(message, Message):
            return self.store.put(message)
        body: object = message.body
        found = {"messaging.message.body.size": len(body)} if isinstance(body, Sized) else {}
        with _current("send", str(message.topic), SpanKind.PRODUCER, found) as span:
            try:
                result = self.store.put(_with_context(message))
            except lakelog.NotDurable as late:
                _describe(span, late.result)
                raise
            _describe(span, result)
            span.set_status(Status(StatusCode.OK))
        return result

    def put_batch(self, messages: Sequence[Message]) -> Sequence[PutResult]:
        """As :meth:`lakelog.Store.put_batch`, with one span; each message has its context."""
        if not isinstance(messages, Sequence) or not all(isinstance(m, Message) for m in messages):
            return self.store.put_batch(messages)
        topics = ", ".join(sorted({str(each.topic) for each in messages}))
        found = {"messaging.batch.message_count": len(messages)}
        with _current("send", topics, SpanKind.PRODUCER, found):
            return self.store.put_batch([_with_context(each) for each in messages])


def _describe(span: Span, result: PutResult) -> None:
    span.set_attribute("messaging.message.id", result.message_id)
    span.set_attribute("messaging.destination.partition.id", str(result.queue_id))
    span.set_attribute("messaging.lakelog.status", result.status.name)


def handling(message: StoredMessage) -> AbstractContextManager[Span]:
    """A span around the work for a message, as a child of the span that put it.

    ::

        for message in consumer.poll(32):
            with lakelog_telemetry.tracing.handling(message):
                handle(message)

    An exception is recorded, and raised again.
    """
    found = {
        "messaging.message.id": message.message_id,
        "messaging.message.body.size": len(message.body),
        "messaging.destination.partition.id": str(message.queue_id),
        "messaging.lakelog.offset": message.queue_offset,
    }
    context = propagate.extract(message.properties)
    return _current("process", message.topic, SpanKind.CONSUMER, found, context)


def _current(
    operation: str,
    topic: str,
    kind: SpanKind,
    found: dict[str, Any],
    context: Context | None = None,
) -> AbstractContextManager[Span]:
    """The current span of an operation, with more attributes."""
    attributes, name = _attributes(topic, operation) | found, f"{operation} {topic}"
    tracer = trace.get_tracer(SYSTEM)
    return tracer.start_as_current_span(name, context, kind=kind, attributes=attributes)


def _attributes(topic: str, operation: str) -> dict[str, Any]:
    return {
        "messaging.system": SYSTEM,
        "messaging.destination.name": topic,
        "messaging.operation.type": operation,
    }


def _with_context(message: Message) -> Message:
    """A copy with the properties of the current context; the caller's message is not changed."""
    given = message.properties
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    if isinstance(given, bytes | bytearray | memoryview):
        given = decode_properties(bytes(given))
    if not carrier or not isinstance(given, Mapping | None):
        return message
    return attrs.evolve(message, properties={**(given or {}), **carrier})


MOST_LINKS: Final = 128
"""Links of a span; the SDK keeps no more by default."""
_MOST_READ: Final = 10_000
"""Messages of a range that are read for their contexts."""
_MARK: Final = b"traceparent\x01"
_NS_IN_MS: Final = 1_000_000


class TracingDispatcher:
    """Makes a span of each run of records: from the put of its first message to its dispatch.

    If it is named last in ``dispatchers``, a span ends when queues and index have the run, too.
    It writes no files, so after a restart it continues at the end of the log.

    :ivar directories: none
    """

    directories: Sequence[str] = ()

    def __init__(self, *, is_silent: bool = False) -> None:
        """Make one; a silent one makes no spans."""
        self._is_silent = is_silent

    def resume(self, minimum: int, end: int) -> int:
        """Nothing is missing."""
        del minimum
        return end

    def dispatch(self, batch: RecordBatch) -> None:
        """Make the span of a run."""
        if self._is_silent or not len(batch):
            return
        begun_ns = min(int(batch.store_timestamps_ms[0]) * _NS_IN_MS, time.time_ns())
        topics = sorted(set(batch.topics))
        span = _started("dispatch", topics, begun_ns)
        if span.is_recording():
            span.set_attribute("messaging.batch.message_count", len(batch))
            start = int(batch.base_offset + batch.starts[0])
            span.set_attribute("messaging.lakelog.start_offset", start)
            span.set_attribute("messaging.lakelog.end_offset", batch.end_offset)
            encoded = (each for each in batch.property_strings if _MARK in each)
            _link(span, map(decode_properties, encoded))
        span.end()

    def truncate(self, end_offset: int) -> None:
        """Nothing was built."""

    def flush(self) -> None:
        """Nothing was built."""

    def close(self) -> None:
        """Nothing is open."""


def landed(
    store: Path, tables: Sequence[str], begun_ns: int, done: Mapping[str, Any] | BaseException
) -> None:
    """Make the span of a pass of landing; an observer of :mod:`lakelog_lake.engine_provider`."""
    span = _started("land", tables, begun_ns)
    if isinstance(done, BaseException):
        span.record_exception(done)
        span.set_status(Status(StatusCode.ERROR, str(done)))
    elif span.is_recording():
        for name, value in done.items():
            span.set_attribute(f"messaging.lakelog.{name}", value)
        _link(span, _properties(store, done["start"], done["end"]))
    span.end()


def _started(operation: str, destinations: Sequence[str], begun_ns: int) -> Span:
    name = ", ".join(destinations)
    return trace.get_tracer(SYSTEM).start_span(
        f"{operation} {name}",
        kind=SpanKind.INTERNAL,
        attributes=_attributes(name, operation),
        start_time=begun_ns,
    )


def _properties(store: Path, start: int, end: int) -> Iterator[Mapping[str, str]]:
    try:
        with lakelog.open(store, mode="read") as opened:
            for message in islice(opened.scan(start, end), _MOST_READ):
                yield message.properties
    except errors.LakelogError:  # the log has moved on: the span has no further links
        return


def _link(span: Span, properties: Iterable[Mapping[str, str]]) -> None:
    for context in islice(_contexts(properties), MOST_LINKS):
        span.add_link(context)


def _contexts(properties: Iterable[Mapping[str, str]]) -> Iterator[SpanContext]:
    """The different contexts of messages."""
    seen = set()
    for each in properties:
        found = trace.get_current_span(propagate.extract(each)).get_span_context()
        key = (found.trace_id, found.span_id)
        if found.is_valid and key not in seen:
            seen.add(key)
            yield found
