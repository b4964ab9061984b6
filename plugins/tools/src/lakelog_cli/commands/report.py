"""``lakelog report``: a store as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Annotated, TypedDict

import typer

from lakelog_cli import pages
from lakelog_cli.options import AsJson, GivenStore
from lakelog_cli.output import exit_if_found, prints, progress, size, write_file, write_result
from lakelog_cli.pages import Content, document, facts, read_content, section


def _sections(content: Content) -> Iterator[str]:
    yield _facts(content)
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
    yield section("Disks", pages.disk_bars(content) + _retention(content))
    yield '<div class="two">'
    yield section(
        "Consumer groups, messages behind",
        pages.bars((f"{g.group} · {g.topic}", g.behind, f"{g.behind:,}") for g in content.groups),
    )
    yield section(
        "Tables and other followers, bytes behind",
        pages.bars((f"{name} {to}".strip(), lag, size(lag)) for name, to, lag in content.followers),
    )
    yield "</div>"
    if content.copies:
        copies = ((name, *_lag(lag), remark) for name, lag, remark in content.copies)
        heads = ["copy", "bytes", "messages", "seconds", ""]
        yield section("Copies", pages.table(heads, copies))
    yield section("Queues", _queues(content))


def _facts(content: Content) -> str:
    damaged = sum(each.damaged_bytes for each in content.segments.segments)
    with_keys = sum(each.with_keys for each in content.topics.values())
    growth = content.traffic.growth_bytes_per_day
    values = {
        "state": content.state,
        "written by": content.written_by,
        "messages": f"{content.records:,}",
        "log": size(content.max_offset - content.min_offset),
        "offsets": f"{content.min_offset} to {content.max_offset}",
        "topics": f"{len(content.topics):,}",
        "with keys": f"{with_keys:,}",
        "a day": "-" if growth is None else size(round(growth)),
        "damaged": size(damaged),
    }
    return facts(values, bad=["damaged"] if damaged else [])


def _retention(content: Content) -> str:
    if content.cleaner is None:
        return "<p>No cleaner is set: nothing is deleted.</p>"
    return f"<p>The cleaner is {escape(content.cleaner)}.</p>"


def _queues(content: Content) -> str:
    rows = [
        (each.topic, each.queue_id, each.kind, each.min_offset, each.max_offset)
        for each in content.queues
    ]
    return pages.table(["topic", "queue", "kind", "first offset", "next offset"], rows)


def _lag(lag: dict[str, object] | None) -> tuple[object, object, object]:
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
        start, end = opened.min_offset, opened.max_offset
        with progress("reading", max(0, end - start)) as advance:
            content = read_content(opened, lambda offset: advance(offset - start))
    write_file(output, document(content.path, _sections(content), content.made_ms))
    row = {"path": str(output), "damaged_places": len(content.damages)}
    write_result(row, str(output), as_json=as_json)
    exit_if_found(content.damages)
