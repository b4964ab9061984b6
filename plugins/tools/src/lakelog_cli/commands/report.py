"""``lakelog report``: a store as one HTML page.

Its content comes from one pass over the log by segments, time and topics, and from the rest of the
store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Annotated, Any, Final, TypedDict

import attrs
import numpy as np
import typer

from lakelog import Store
from lakelog.errors import StoreError
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.layout import ABORT_FILE, OWN_DIR
from lakelog.format.record_batch import Damage, RecordBatch
from lakelog.maintenance.pins import read_pins
from lakelog.processes.ownership import is_owned
from lakelog_cli import pages, statelines
from lakelog_cli.options import AsJson, GivenStore
from lakelog_cli.output import exit_if_found, prints, progress, size, write_file, write_result
from lakelog_cli.pages import facts, section
from lakelog_daemon.status import disks
from lakelog_doctor.parallel_scan import directory_of

_KEYS: Final = b"KEYS\x01"


@attrs.define
class TopicTotal:
    """Messages of one topic in the log: their number, bytes of records, and those with keys."""

    messages: int = 0
    record_bytes: int = 0
    with_keys: int = 0


@attrs.define
class Content:
    """The content of a log, from one pass over it."""

    traffic: pages.TrafficOverTime
    segments: pages.SegmentCounts
    topics: dict[str, TopicTotal] = attrs.field(factory=dict)
    damages: list[Damage] = attrs.field(factory=list)

    @property
    def records(self) -> int:
        """Whole records in the log."""
        return sum(each.records for each in self.segments.segments)


def read_content(store: Store) -> Content:
    """Read the log of a store that is open for reading."""
    content = Content(pages.TrafficOverTime.of(store), pages.SegmentCounts.of(store))
    start = store.min_offset
    with progress("reading", max(0, store.max_offset - start)) as advance:
        for piece in store.scan_pieces():
            content.segments.add(piece)
            if isinstance(piece, RecordBatch):
                content.traffic.add(piece)
                _add_topics(content.topics, piece)
                advance(piece.end_offset - start)
            elif isinstance(piece, Damage):
                content.damages.append(piece)
    return content


def _add_topics(topics: dict[str, TopicTotal], batch: RecordBatch) -> None:
    names = np.array(batch.topics, dtype=object)
    keyed = np.array([_KEYS in each for each in batch.property_strings])
    for name in Counter(batch.topics):
        these = names == name
        total = topics.setdefault(name, TopicTotal())
        total.messages += int(these.sum())
        total.record_bytes += int(batch.sizes[these].sum())
        total.with_keys += int(keyed[these].sum())


def _sections(store: Store, content: Content) -> Iterator[str]:
    yield _facts(store, content)
    traffic = content.traffic
    yield '<div class="two">'
    yield section("Messages a second", pages.over_time(traffic, traffic.messages, "messages/s"))
    yield section("Bytes a second", pages.over_time(traffic, traffic.record_bytes, "bytes/s"))
    topics = content.topics.items()
    yield section(
        "Topics by messages",
        pages.bars((name, each.messages, f"{each.messages:,}") for name, each in topics),
    )
    yield section(
        "Topics by size",
        pages.bars((name, each.record_bytes, size(each.record_bytes)) for name, each in topics),
    )
    yield "</div>"
    yield section("Segments", pages.segment_map(content.segments))
    if content.damages:
        rows = ((each.offset, each.end_offset, str(each)) for each in content.damages)
        yield section("Damage", pages.table(["from", "to", "what"], rows))
    yield section("Disks", _disk_bars(store, content.traffic) + _retention(store))
    yield '<div class="two">'
    queues = store.queues()
    groups = statelines.group_lags(store, queues)
    yield section(
        "Consumer groups, messages behind",
        pages.bars((f"{g.group} · {g.topic}", g.behind, f"{g.behind:,}") for g in groups),
    )
    yield section(
        "Tables and other followers, bytes behind",
        pages.bars((name, lag, size(lag)) for name, lag in _followers(store)),
    )
    yield "</div>"
    view = statelines.CopyLags(store).view()
    lags = statelines.lag_rows(view) if view is not None else ()
    if copies := [(name, *_lag(lag), remark) for name, lag, remark in lags]:
        heads = ["copy", "bytes", "messages", "seconds", ""]
        yield section("Copies", pages.table(heads, copies))
    heads = ["topic", "queue", "kind", "first offset", "next offset"]
    each_queue = (
        (each.topic, each.queue_id, each.kind, each.min_offset, each.max_offset) for each in queues
    )
    yield section("Queues", pages.table(heads, each_queue))


def _facts(store: Store, content: Content) -> str:
    damaged = sum(each.damaged_bytes for each in content.segments.segments)
    with_keys = sum(each.with_keys for each in content.topics.values())
    growth = content.traffic.growth_bytes_per_day
    values = {
        "state": _state(store.path),
        "written by": "lakelog" if (store.path / OWN_DIR).is_dir() else "RocketMQ",
        "messages": f"{content.records:,}",
        "log": size(store.max_offset - store.min_offset),
        "offsets": f"{store.min_offset} to {store.max_offset}",
        "topics": f"{len(content.topics):,}",
        "with keys": f"{with_keys:,}",
        "a day": "-" if growth is None else size(round(growth)),
        "damaged": size(damaged),
    }
    return facts(values, bad=["damaged"] if damaged else [])


def _state(path: Path) -> str:
    if is_owned(RealFileSystem(), path):
        return "in use"
    return "not closed: its last writer was killed" if (path / ABORT_FILE).exists() else "closed"


def _disk_bars(store: Store, traffic: pages.TrafficOverTime) -> str:
    """A bar for each disk, with the time until it is full."""
    rows = []
    for each in disks(store.path, directory_of(store).commitlog):
        text = f"{each['used_ratio']:.1%} used, {size(each['free_bytes'])} free"
        text += _days_left(traffic.growth_bytes_per_day, each["free_bytes"])
        rows.append(pages.bar_row(each["path"], each["used_ratio"], text))
    return f"<table>{''.join(rows)}</table>"


def _days_left(growth: float | None, free_bytes: int) -> str:
    if growth is None or growth < 1:
        return ""
    days = free_bytes / growth
    return f"; full in {days:,.1f} days at the last day's rate" if days < 10_000 else ""


def _retention(store: Store) -> str:
    cleaner = store.settings.core.cleaner
    if cleaner is None:
        return "<p>No cleaner is set: nothing is deleted.</p>"
    return f"<p>The cleaner is {escape(cleaner)}.</p>"


def _followers(store: Store) -> Iterator[tuple[str, int]]:
    """Name and destination of each follower, and its bytes behind the durable end."""
    try:
        end = store.flushed_offset
    except StoreError:
        end = store.max_offset
    for pin in read_pins(RealFileSystem(), store.path):
        yield f"{pin.name} {pin.destination}".strip(), max(0, end - pin.position)


def _lag(lag: Mapping[str, Any] | None) -> tuple[object, object, object]:
    if lag is None:
        return "not known", "", ""
    return lag["bytes"], lag["messages"], lag["seconds"]


class ReportRow(TypedDict):
    """A written page."""

    path: str
    damaged_places: int


@prints(ReportRow)
def report(
    store: GivenStore,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The page to write.")
    ] = Path("report.html"),
    as_json: AsJson = False,
) -> None:
    """Write a page about a store: traffic, topics, segments, damage, lags, disks.

    The page is one file without references to others. The whole log is read once; the store may be
    in use, or left by a crashed broker. The exit code is 1 if damage was found.
    """
    with store.read() as opened:
        content = read_content(opened)
        page = pages.document(str(opened.path), _sections(opened, content))
    write_file(output, page)
    row = {"path": str(output), "damaged_places": len(content.damages)}
    write_result(row, str(output), as_json=as_json)
    exit_if_found(content.damages)
