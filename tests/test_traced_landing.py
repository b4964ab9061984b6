"""A pass of landing is a span with links to the puts, and an observer that fails stops nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import lakelog
from lakelog_lake import engine_provider
from lakelog_lake.errors import LandingError
from lakelog_lake.tasks.task import LandingSource
from lakelog_telemetry import TracedStore, tracing
from plugins.lake.tests.landing.tables import land_all, make


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """Give an exporter of this process's spans."""
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield exporter
    exporter.shutdown()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Give a store with five traced messages."""
    with lakelog.open(tmp_path / "shop", segment_size_bytes="1MiB") as opened:
        for _ in range(5):
            TracedStore(opened).put(lakelog.Message("orders", b"x", queue_id=0))
    return tmp_path / "shop"


def test_a_pass_has_links_to_the_puts(
    spans: InMemorySpanExporter, store: Path, tmp_path: Path
) -> None:
    assert tracing.landed in engine_provider.observers()
    sink = make("parquet", tmp_path / "table")
    land_all(LandingSource(store, "S"), sink)
    finished = spans.get_finished_spans()
    [landed] = [each for each in finished if each.name.startswith("land ")]
    assert landed.name == f"land {sink.name}"
    assert landed.attributes is not None
    assert landed.attributes["messaging.lakelog.rows"] == 5
    puts = {each.context.span_id for each in finished if each.name == "send orders"}
    assert {link.context.span_id for link in landed.links} == puts
    assert len(puts) == 5


def test_a_pass_that_fails_has_its_error(
    spans: InMemorySpanExporter, store: Path, tmp_path: Path
) -> None:
    sink = make("parquet", tmp_path / "table")
    land_all(LandingSource(store, "S"), sink)
    spans.clear()
    with lakelog.open(tmp_path / "other", segment_size_bytes="1MiB") as other:
        other.put(lakelog.Message("orders", b"y"))
    with pytest.raises(LandingError):
        land_all(LandingSource(tmp_path / "other", "S"), sink)
    [landed] = [each for each in spans.get_finished_spans() if each.name.startswith("land ")]
    assert not landed.status.is_ok
    assert [each.name for each in landed.events] == ["exception"]


def test_an_observer_that_fails_is_logged(
    store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no room")

    monkeypatch.setattr(engine_provider, "observers", lambda: [broken])
    with caplog.at_level(logging.ERROR, "lakelog"):
        land_all(LandingSource(store, "S"), make("parquet", tmp_path / "table"))
    assert "an observer of landing failed" in caplog.text
