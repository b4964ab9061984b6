"""What a recovery found and did, as text for a terminal and as a row of JSON."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from lakelog.log.reading.pieces import Damage
from lakelog.recovery.report import Aside, RecoveryReport
from lakelog_cli.shown import shown


def recovery_lines(store: Path, report: RecoveryReport, *, dry_run: bool) -> Iterator[str]:
    """A line for each thing that was found, and for what was done about it."""
    cut, mended = ("to cut", "to mend") if dry_run else ("cut", "mended")
    stop = "a clean stop" if report.clean else "an unclean stop"
    yield f"{shown(str(store))}: {stop}"
    yield f"  read      from {report.start_offset}: {report.start_reason}"
    yield f"  records   {report.records} whole ones"
    yield f"  log       {report.minimum} to {report.end_offset}"
    for aside in report.cut:
        size = aside.end_offset - aside.offset
        yield f"  {cut:<9} {size} bytes, {shown(str(aside))}"
    if report.cut_at is not None:
        yield f"  {cut} at{'':<{7 - len(cut)}}{shown(str(report.cut_at))}"
    for damage in report.damage:
        yield f"  damage    {damage.end_offset - damage.offset} bytes stay: {shown(str(damage))}"
    for missing in report.missing:
        yield f"  missing   {missing.end_offset - missing.offset} bytes, {shown(str(missing))}"
    for words in report.mended:
        yield f"  {mended:<9} {shown(words)}"
    if not dry_run:
        yield f"  queues    and index completed from {report.dispatched_from} on"
    yield f"  took      {report.seconds:.2f} s"


def recovery_row(report: RecoveryReport) -> dict[str, Any]:
    """All of it."""
    return {
        "clean": report.clean,
        "read_from": report.read_from,
        "start_offset": report.start_offset,
        "start_reason": report.start_reason,
        "min_offset": report.minimum,
        "end_offset": report.end_offset,
        "records": report.records,
        "damage": list(map(_damage_row, report.damage)),
        "missing": list(map(attrs.asdict, report.missing)),
        "cut": list(map(aside_row, report.cut)),
        "cut_at": _damage_row(report.cut_at) if report.cut_at is not None else None,
        "mended": list(report.mended),
        "dispatched_from": report.dispatched_from,
        "seconds": report.seconds,
    }


def _damage_row(damage: Damage) -> dict[str, Any]:
    path = str(damage.path) if damage.path is not None else None
    place = {"offset": damage.offset, "end_offset": damage.end_offset}
    return {"path": path, **place, "what": str(damage.error)}


def aside_row(aside: Aside) -> dict[str, Any]:
    """What is kept in quarantine, and where."""
    kept = str(aside.path) if aside.path is not None else None
    place = {"offset": aside.offset, "end_offset": aside.end_offset}
    return {**place, "what": aside.reason, "kept": kept}
