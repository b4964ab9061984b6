"""The page: self-contained HTML, light or dark as the reader's system is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from typing import Final

from lakelog_cli.amounts import size
from lakelog_cli.report import charts
from lakelog_cli.report.content import Content
from lakelog_cli.shown import shown

_STYLE: Final = """
:root{--back:#fff;--text:#1b1f24;--soft:#57606a;--line:#d0d7de;--main:#0b7a75;--fill:#0b7a7533;
--bad:#c62828;--empty:#eef1f4;color-scheme:light dark}
@media(prefers-color-scheme:dark){:root{--back:#0d1117;--text:#e6edf3;--soft:#9198a1;--line:#30363d;
--main:#4fd1c5;--fill:#4fd1c533;--bad:#ff7b72;--empty:#1c2128}}
body{background:var(--back);color:var(--text);font:15px/1.5 system-ui,sans-serif;max-width:1120px;
margin:0 auto;padding:1.5rem}
h1{font-size:1.4rem;overflow-wrap:anywhere}h2{font-size:1.05rem;margin:2rem 0 .5rem}
p,.soft{color:var(--soft)}.facts{display:flex;flex-wrap:wrap;gap:.5rem 2rem}
.facts div{min-width:8rem}.facts b{display:block;font-size:1.25rem}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,30rem),1fr));gap:0 2rem}
svg{width:100%}svg text{fill:var(--soft);font-size:11px}.axis{stroke:var(--line)}
.line{fill:none;stroke:var(--main);stroke-width:1.5}.area{fill:var(--fill)}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.2rem .6rem .2rem 0;
border-bottom:1px solid var(--line);font-weight:400;overflow-wrap:anywhere}
.bar{width:35%}.bar span{display:block;height:.8rem;background:var(--main);min-width:1px}
.map{display:flex;flex-wrap:wrap;gap:3px}.cell{width:18px;height:18px;background:var(--empty);
display:flex;align-items:flex-end}.cell span{display:block;width:100%;background:var(--main)}
.number{white-space:nowrap}
.damaged{outline:2px solid var(--bad)}.damaged span{background:var(--bad)}
.bad{color:var(--bad)}
"""


def page(content: Content) -> str:
    """The whole document."""
    title = escape(shown(content.path))
    body = "\n".join(_sections(content))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{_STYLE}</style></head><body>\n<h1>{title}</h1>\n{body}\n"
        f'<p class="soft">lakelog {escape(version("lakelog-core"))}, made at '
        f"{datetime.fromtimestamp(content.made_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}; times are UTC"
        "</p></body></html>\n"
    )


def _sections(content: Content) -> Iterator[str]:
    yield f'<div class="facts">{"".join(_facts(content))}</div>'
    traffic = content.traffic
    yield '<div class="two">'
    yield _section("Messages a second", charts.over_time(traffic, traffic.messages, "messages/s"))
    yield _section("Bytes a second", charts.over_time(traffic, traffic.record_bytes, "bytes/s"))
    topics = content.topics.items()
    yield _section(
        "Topics by messages",
        charts.bars((name, each.messages, f"{each.messages:,}") for name, each in topics),
    )
    yield _section(
        "Topics by size",
        charts.bars((name, each.record_bytes, size(each.record_bytes)) for name, each in topics),
    )
    yield "</div>"
    yield _section("Segments", charts.segment_map(content.segments) + _legend(content))
    if content.damages:
        rows = ((each.offset, each.end_offset, shown(str(each))) for each in content.damages)
        yield _section("Damage", charts.table(["from", "to", "what"], rows))
    yield _section("Disks", charts.disk_bars(content) + _retention(content))
    yield '<div class="two">'
    yield _section(
        "Consumer groups, messages behind",
        charts.bars((f"{g.group} · {g.topic}", g.behind, f"{g.behind:,}") for g in content.groups),
    )
    yield _section(
        "Tables and other followers, bytes behind",
        charts.bars(
            (f"{name} {to}".strip(), lag, size(lag)) for name, to, lag in content.followers
        ),
    )
    yield "</div>"
    if content.copies:
        copies = ((name, *_lag(lag), remark) for name, lag, remark in content.copies)
        heads = ["copy", "bytes", "messages", "seconds", ""]
        yield _section("Copies", charts.table(heads, copies))
    yield _section("Queues", _queues(content))


def _facts(content: Content) -> Iterator[str]:
    damaged = sum(each.damaged_bytes for each in content.segments)
    with_keys = sum(each.with_keys for each in content.topics.values())
    growth = content.traffic.growth_bytes_per_day
    facts = {
        "state": content.state,
        "written by": content.written_by,
        "messages": f"{content.records:,}",
        "log": size(content.max_offset - content.min_offset),
        "topics": f"{len(content.topics):,}",
        "with keys": f"{with_keys:,}",
        "a day": "-" if growth is None else size(round(growth)),
        "damaged": size(damaged),
    }
    for name, value in facts.items():
        mark = ' class="bad"' if name == "damaged" and damaged else ""
        yield f'<div><span class="soft">{name}</span><b{mark}>{escape(value)}</b></div>'


def _section(title: str, inner: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{inner}</section>"


def _legend(content: Content) -> str:
    return (
        f"<p>{len(content.segments)} segments of {size(content.segment_size_bytes)}, from offset "
        f"{content.min_offset} to {content.max_offset}. A cell is filled as far as its segment is; "
        "a red one has damage. Point at a cell to see its numbers.</p>"
    )


def _retention(content: Content) -> str:
    if content.cleaner is None:
        return "<p>No cleaner is set: nothing is deleted.</p>"
    return f"<p>The cleaner is {escape(content.cleaner)}.</p>"


def _queues(content: Content) -> str:
    rows = [
        (each.topic, each.queue_id, each.kind, each.min_offset, each.max_offset)
        for each in content.queues
    ]
    return charts.table(["topic", "queue", "kind", "first offset", "next offset"], rows)


def _lag(lag: dict[str, object] | None) -> tuple[object, object, object]:
    if lag is None:
        return "not known", "", ""
    return lag["bytes"], lag["messages"], lag["seconds"]
