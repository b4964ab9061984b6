"""Spans of one trace from the put to the consumer, through a real store and the real SDK."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import lakelog
from lakelog_telemetry import TracedStore, handling

_EXPORTER = InMemorySpanExporter()


@pytest.fixture(scope="module", autouse=True)
def _provider() -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(_EXPORTER))
    trace.set_tracer_provider(provider)


@pytest.fixture
def spans() -> InMemorySpanExporter:
    """The exporter, without spans of other tests."""
    _EXPORTER.clear()
    return _EXPORTER


@pytest.fixture
def store(tmp_path: Path) -> Iterator[lakelog.Store]:
    """An open store."""
    with lakelog.open(
        tmp_path / "shop", segment_size_bytes="1MiB", dispatchers=["consume-queue"]
    ) as opened:
        yield opened


def named(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    [found] = [each for each in spans.get_finished_spans() if each.name == name]
    return found


def test_one_trace_from_the_put_to_the_consumer(
    store: lakelog.Store, spans: InMemorySpanExporter
) -> None:
    message = lakelog.Message("orders", b"one espresso", properties={"name": "Rex"}, queue_id=0)
    result = TracedStore(store).put(message)
    assert message.properties == {"name": "Rex"}, "the caller's message is not changed"
    store.wait_dispatched()
    [found] = store.get("orders", 0, 0).messages
    assert found.properties["name"] == "Rex"
    with handling(found):
        pass
    send, process = named(spans, "send orders"), named(spans, "process orders")
    assert send.attributes is not None
    assert send.attributes["messaging.message.id"] == result.message_id
    assert process.parent is not None
    assert process.parent.span_id == send.context.span_id
    assert process.context.trace_id == send.context.trace_id


def test_a_batch_has_one_span_and_each_message_its_context(
    store: lakelog.Store, spans: InMemorySpanExporter
) -> None:
    TracedStore(store).put_batch([lakelog.Message("orders", b"%d" % n) for n in range(5)])
    for message in store.scan():
        with handling(message):
            pass
    send = named(spans, "send orders")
    handled = [each for each in spans.get_finished_spans() if each.name == "process orders"]
    assert [each.parent and each.parent.span_id for each in handled] == [send.context.span_id] * 5


def test_a_message_without_a_context_begins_a_trace(
    store: lakelog.Store, spans: InMemorySpanExporter
) -> None:
    store.put(lakelog.Message("orders", b"plain"))
    with handling(next(iter(store.scan()))):
        pass
    assert named(spans, "process orders").parent is None


def test_an_error_is_recorded_and_raised(store: lakelog.Store, spans: InMemorySpanExporter) -> None:
    TracedStore(store).put(lakelog.Message("orders", b"x", queue_id=0))
    store.wait_dispatched()
    with pytest.raises(KeyError), handling(store.get("orders", 0, 0).messages[0]):
        raise KeyError("no such customer")
    assert not named(spans, "process orders").status.is_ok
    with pytest.raises(lakelog.PutRefused):
        TracedStore(store).put(lakelog.Message("orders", b"x" * (2 << 20)))
    assert [each.status.is_ok for each in spans.get_finished_spans() if "send" in each.name] == [
        True,
        False,
    ]


def test_encoded_properties_keep_their_values(store: lakelog.Store) -> None:
    TracedStore(store).put(lakelog.Message("orders", b"x", properties=b"a\x011\x02", queue_id=0))
    [found] = list(store.scan())
    assert found.properties["a"] == "1"
    with handling(found):
        pass


def test_a_run_that_is_dispatched_has_links_to_its_puts(
    tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    with lakelog.open(
        tmp_path / "shop", segment_size_bytes="1MiB", dispatchers=["consume-queue", "tracing"]
    ) as store:
        for _ in range(5):
            TracedStore(store).put(lakelog.Message("orders", b"x", queue_id=0))
        store.put(lakelog.Message("orders", b"plain"))
        store.wait_dispatched()
        end = store.max_offset
    finished = spans.get_finished_spans()
    runs = [each for each in finished if each.name == "dispatch orders"]
    linked = {link.context.span_id for each in runs for link in each.links}
    assert linked == {each.context.span_id for each in finished if each.name == "send orders"}
    assert len(linked) == 5
    assert sum(number(each, "messaging.batch.message_count") for each in runs) == 6
    assert max(number(each, "messaging.lakelog.end_offset") for each in runs) == end
    assert all(0 < (each.start_time or 0) <= (each.end_time or 0) for each in runs)


def number(span: ReadableSpan, name: str) -> int:
    return int(str((span.attributes or {})[name]))


def test_a_reader_makes_no_spans(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    dispatchers = ["consume-queue", "tracing"]
    with lakelog.open(
        tmp_path / "shop", segment_size_bytes="1MiB", dispatchers=dispatchers
    ) as store:
        store.put(lakelog.Message("orders", b"x", queue_id=0))
        store.wait_dispatched()
        spans.clear()
        with lakelog.open(tmp_path / "shop", mode="read", dispatchers=dispatchers) as reader:
            assert len(reader.get("orders", 0, 0).messages) == 1
        assert spans.get_finished_spans() == ()


WRONG: list[Any] = [b"x", None, lakelog.Message, *[
    lakelog.Message(**{"topic": "t", "body": b"x", **wrong})
    for wrong in ({"topic": 5}, {"body": 5}, {"body": "x"}, {"properties": 5}, {"properties": [5]})
]]  # fmt: skip  # no messages, then messages with a field of a wrong type


def test_errors_are_those_of_the_store(store: lakelog.Store) -> None:
    traced, tracer = TracedStore(store), trace.get_tracer("test")
    batches = [*([each] for each in WRONG), None, 5]
    with tracer.start_as_current_span("outer"):
        for name, wrongs in (("put", WRONG), ("put_batch", batches)):
            for wrong in wrongs:
                said = []
                for each in (store, traced):
                    with pytest.raises(lakelog.errors.WrongType) as caught:
                        getattr(each, name)(wrong)
                    said.append(str(caught.value))
                assert said[0] == said[1]
        given = bytearray(b"a\x011\x02")
        result = traced.put(lakelog.Message("t", b"x", properties=given))
    assert store.look_up(result.physical_offset).properties["a"] == "1"
