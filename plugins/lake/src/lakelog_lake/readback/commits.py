"""What the last commits of a table added, by what the table says of itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from lakelog_lake.sinks.parquet import ParquetSink

MOST: Final = 40
"""So many of the last ones are looked at."""


@attrs.frozen
class Commit:
    """One commit.

    :ivar at_ms: when, in ms since 1970
    :ivar rows: that it added; :ivar files: data files that it added; :ivar bytes: how long they are
    """

    at_ms: int
    rows: int
    files: int
    bytes: int


def of_iceberg(table: Table) -> list[Commit]:
    """By the summaries of snapshots, the oldest first."""
    found = sorted(table.metadata.snapshots, key=lambda each: each.timestamp_ms)[-MOST:]
    return [
        Commit(
            each.timestamp_ms,
            *(
                int((each.summary.get(name) if each.summary else None) or 0)
                for name in ("added-records", "added-data-files", "added-files-size")
            ),
        )
        for each in found
    ]


def of_delta(folder: Path) -> list[Commit]:
    """By the log of a table on this machine; what a clean-up took away is not there."""
    paths = sorted(each for each in (folder / "_delta_log").glob("*.json") if each.stem.isdigit())
    found = []
    for path in paths[-MOST:]:
        with suppress(FileNotFoundError):
            found.append(_of_actions(map(json.loads, path.read_text().splitlines())))
    return found


def _of_actions(actions: Iterable[Mapping[str, Any]]) -> Commit:
    at_ms = rows = files = size = 0
    for each in actions:
        at_ms = int(each.get("commitInfo", {}).get("timestamp", at_ms))
        added = each.get("add")
        if added is not None:
            files += 1
            size += int(added["size"])
            rows += int(json.loads(added.get("stats") or "{}").get("numRecords", 0))
    return Commit(at_ms, rows, files, size)


def of_parquet(sink: ParquetSink) -> list[Commit]:
    """By the manifests that are kept."""
    return list(_of_manifests(sink))[-MOST:]


def _of_manifests(sink: ParquetSink) -> Iterator[Commit]:
    before: set[str] = set()
    for at_ms, entries, is_whole in sink.history(MOST):
        new = [each for each in entries if each["path"] not in before]
        rows, size = (sum(int(each[name]) for each in new) for name in ("rows", "size_bytes"))
        before = {each["path"] for each in entries} | (set() if is_whole else before)
        yield Commit(at_ms, rows, len(new), size)
