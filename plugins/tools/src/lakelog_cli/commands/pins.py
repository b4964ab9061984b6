"""``lakelog pins``: the part of the log that followers, running or not, still need."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

import typer

from lakelog import Store
from lakelog.errors import NotAStore
from lakelog.files.filesystem import RealFileSystem
from lakelog.maintenance.pins import Pin, PinValidator, read_pins, remove_pin
from lakelog.settings.effective import MAINTENANCE
from lakelog.times import iso
from lakelog_cli import options, output
from lakelog_cli.app import subcommands_of

app = subcommands_of("pins")


class PinRow(TypedDict):
    """A pin of a follower.

    :ivar position: offset of the follower; null if the pin cannot be read
    :ivar held_bytes: length of the part of the log that it holds
    :ivar time: time of the pin, in ISO 8601
    :ivar problem: reason for ignoring the pin
    """

    name: str
    position: int | None
    held_bytes: int
    time: str | None
    destination: str | None
    problem: str | None


class RemovedPinRow(TypedDict):
    """A pin that was removed."""

    name: str


@app.command(name="list")
@output.prints(PinRow)
def list_pins(store: options.GivenStore, as_json: options.AsJson = False) -> None:
    """List pins: the position of each follower, the time of its report, and the held bytes."""
    with store.read() as opened:
        pins = read_pins(RealFileSystem(), opened.path)
        found, rows = _judged(opened, pins)
    output.write_rows(rows, as_json=as_json)
    for each in found:
        if each.problem is not None:
            output.print_line(f"lakelog: {each.problem}", err=True)


@app.command()
@output.prints(RemovedPinRow)
def remove(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The store directory.")],
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names as in the list.")],
    as_json: options.AsJson = False,
) -> None:
    """Remove pins, also unreadable ones; a running follower writes its pin again."""
    if not store.is_dir():
        raise NotAStore("no store is here; is the path right?", path=store)
    files = RealFileSystem.of_store(store)
    known = [each.name for each in read_pins(files, store)]
    for name in names:
        options.check_name("pin", name, known)
    for name in names:
        remove_pin(files, store, name)
    if as_json:
        output.write_lines({"name": name} for name in names)


def _judged(store: Store, pins: Sequence[Pin]) -> tuple[list[Pin], list[dict[str, Any]]]:
    """The pins after their check, and a line for each."""
    after_ms = store.settings.section(MAINTENANCE).pin_expires_after_ms
    now_ms = time.time_ns() // 1_000_000
    log, judge = (store.min_offset, store.max_offset), PinValidator(store.scan_pieces)
    found, rows = [], []
    for each in pins:
        expired = each.has_expired(now_ms, after_ms)
        pin = each if expired else judge.judged(each, *log)
        found.append(pin)
        rows.append(_row(pin, log, expired=expired))
    return found, rows


def _row(pin: Pin, log: tuple[int, int], *, expired: bool) -> dict[str, Any]:
    """One line; ``log`` is its first offset and its end."""
    known = pin.problem is None
    return {
        "name": pin.name,
        "position": pin.position if known else None,
        "held_bytes": 0 if expired else max(0, log[1] - max(pin.position, log[0])),
        "time": iso(pin.time_ms) if known else None,
        "destination": pin.destination or None,
        "problem": "it has expired" if expired else pin.problem,
    }
