"""``lakelog pins``: the part of the log that followers, running or not, still need."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from lakelog import Store
from lakelog.errors import NotAStore
from lakelog.files.filesystem import RealFileSystem
from lakelog.maintenance.pins import Pin, PinValidator, read_pins, remove_pin
from lakelog.settings.catalog import MAINTENANCE
from lakelog_cli.group import ListByDefault
from lakelog_cli.opening import check_name, open_for
from lakelog_cli.options import AsJson, Assignments, BrokerConf, SettingsFile, StorePath
from lakelog_cli.output import write_lines, write_rows
from lakelog_cli.rows.queues import PinRow, RemovedPinRow
from lakelog_cli.schema import prints

app = typer.Typer(
    cls=ListByDefault,
    help="List the pins of followers: 'lakelog pins STORE'. Segments that a pin needs are kept.",
    no_args_is_help=True,
    add_completion=False,
)


@app.command(name="list")
@prints(PinRow)
def list_pins(
    store: StorePath,
    as_json: AsJson = False,
    broker_conf: BrokerConf = None,
    settings: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """List pins: the position of each follower, the time of its report, and the held bytes."""
    with open_for("read", store, broker_conf, settings, assignments) as opened:
        pins = read_pins(RealFileSystem(), opened.path)
        found, rows = _judged(opened, pins)
    write_rows(rows, as_json=as_json)
    for each in found:
        if each.problem is not None:
            typer.echo(f"lakelog: {each.problem}", err=True)


@app.command()
@prints(RemovedPinRow)
def remove(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The store directory.")],
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names as in the list.")],
    as_json: AsJson = False,
) -> None:
    """Remove pins, also unreadable ones; a running follower writes its pin again."""
    if not store.is_dir():
        raise NotAStore("no store is here; is the path right?", path=store)
    files = RealFileSystem.of_store(store)
    known = [each.name for each in read_pins(files, store)]
    for name in names:
        check_name("pin", name, known)
    for name in names:
        remove_pin(files, store, name)
    if as_json:
        write_lines({"name": name} for name in names)


def _judged(store: Store, pins: Sequence[Pin]) -> tuple[list[Pin], list[dict[str, Any]]]:
    """The pins after their check, and a line for each."""
    after_ms, now_ms = store.settings.section(MAINTENANCE).pin_expires_after_ms, _now_ms()
    log, judge = (store.min_offset, store.max_offset), PinValidator(store.scan_pieces)
    found, rows = [], []
    for each in pins:
        expired = each.has_expired(now_ms, after_ms)
        pin = each if expired else judge.judged(each, *log)
        found.append(pin)
        rows.append(_row(pin, log, expired=expired))
    return found, rows


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _row(pin: Pin, log: tuple[int, int], *, expired: bool) -> dict[str, Any]:
    """One line; ``log`` is its first offset and its end."""
    known = pin.problem is None
    return {
        "name": pin.name,
        "position": pin.position if known else None,
        "held_bytes": 0 if expired else max(0, log[1] - max(pin.position, log[0])),
        "time": _time(pin.time_ms) if known else None,
        "destination": pin.destination or None,
        "problem": "it has expired" if expired else pin.problem,
    }


def _time(time_ms: int) -> str:
    """A time in ISO 8601, in UTC; the number itself if it is out of the range of ``datetime``."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"
