"""Spans around puts, and around the work of a consumer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import attrs
from opentelemetry import propagate, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from lakelog import LogStore, Message, PutResult, StoredMessage
from lakelog.format.properties import decode_properties

SCOPE: Final = "lakelog"
SYSTEM: Final = "lakelog"
"""The value of ``messaging.system``."""


@attrs.frozen
class TracedStore:
    """Puts messages with a span each, whose context is in the message.

    :ivar store: the store that puts them
    """

    store: LogStore

    def put(self, message: Message) -> PutResult:
        """As :meth:`lakelog.Store.put`; the span ends when it returns."""
        with _sending(message) as (span, sent):
            result = self.store.put(sent)
            span.set_attributes(
                {
                    "messaging.message.id": result.message_id,
                    "messaging.destination.partition.id": str(result.queue_id),
                    "messaging.lakelog.status": result.status.name,
                }
            )
        return result

    def put_batch(self, messages: Sequence[Message]) -> Sequence[PutResult]:
        """As :meth:`lakelog.Store.put_batch`, with one span; each message has its context."""
        topics = sorted({each.topic for each in messages})
        found = _attributes(", ".join(topics), "send")
        found["messaging.batch.message_count"] = len(messages)
        tracer = trace.get_tracer(SCOPE)
        with tracer.start_as_current_span(
            f"send {', '.join(topics)}", kind=SpanKind.PRODUCER, attributes=found
        ):
            return self.store.put_batch([_with_context(each) for each in messages])


@contextmanager
def handling(message: StoredMessage) -> Iterator[Span]:
    """A span around the work for a message, as a child of the span that put it.

    ::

        for message in consumer.poll(32):
            with lakelog_tracing.handling(message):
                handle(message)

    An exception is recorded, and raised again.
    """
    found = _attributes(message.topic, "process")
    found["messaging.message.id"] = message.message_id
    found["messaging.message.body.size"] = len(message.body)
    found["messaging.destination.partition.id"] = str(message.queue_id)
    found["messaging.lakelog.offset"] = message.queue_offset
    with trace.get_tracer(SCOPE).start_as_current_span(
        f"process {message.topic}",
        propagate.extract(message.properties),
        kind=SpanKind.CONSUMER,
        attributes=found,
    ) as span:
        yield span


@contextmanager
def _sending(message: Message) -> Iterator[tuple[Span, Message]]:
    found = _attributes(message.topic, "send")
    found["messaging.message.body.size"] = len(message.body)
    with trace.get_tracer(SCOPE).start_as_current_span(
        f"send {message.topic}", kind=SpanKind.PRODUCER, attributes=found
    ) as span:
        yield span, _with_context(message)
        if not span.is_recording():
            return
        span.set_status(Status(StatusCode.OK))


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
    if not carrier:
        return message
    known: Mapping[str, str] = decode_properties(given) if isinstance(given, bytes) else given or {}
    return attrs.evolve(message, properties={**known, **carrier})
