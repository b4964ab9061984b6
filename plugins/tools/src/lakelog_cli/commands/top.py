"""``lakelog top``: the present state of a running store, in frames that keys arrange."""

from __future__ import annotations

import os
import re
import select
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict

import attrs
import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

import lakelog
from lakelog.errors import LakelogError
from lakelog_cli import output, statelines
from lakelog_cli.options import AsJson, GivenStore
from lakelog_daemon.watching import Watcher

QUIT: Final = "q"
_ESCAPE: Final = "\x1b"
_SEQUENCE: Final = re.compile(r"\x1b(?:\[[\d;]*[A-Za-z~]|O[A-Za-z])")
"""The escape sequences of arrows and similar keys."""
_ERASING: Final = ("\x7f", "\b")
_NAME: Final = "name"
_COLUMNS: Final = {"lag": "behind", "cpu": "cpu_percent", "memory": "rss_bytes"}
ORDERS: Final = ("as listed", _NAME, *_COLUMNS)
"""Names go from the least on, numbers from the largest on."""
_NAMES: Final = {"groups": ("group", "topic"), "processes": ("name",), "members": ("name",)}
"""The tables with rows to arrange, and the columns that name a row."""

View = Mapping[str, Any]


@attrs.define
class Controls:
    """The choices of the user so far.

    :ivar order: one of ``ORDERS``
    :ivar text: only rows with it in a name are shown, whatever the case of letters
    :ivar is_typing: whether keys belong to ``text``
    :ivar is_done: whether to end
    """

    order: str = ORDERS[0]
    text: str = ""
    is_typing: bool = False
    is_done: bool = False

    def press(self, keys: str) -> None:
        """Handle the keys typed since the last call; keys such as arrows are ignored."""
        for key in _SEQUENCE.sub("", keys):
            if self.is_typing:
                self._type(key)
            else:
                self._choose(key)

    def _type(self, key: str) -> None:
        if key in "\r\n":
            self.is_typing = False
        elif key == _ESCAPE:
            self.is_typing, self.text = False, ""
        elif key in _ERASING:
            self.text = self.text[:-1]
        elif key.isprintable():
            self.text += key

    def _choose(self, key: str) -> None:
        if key == QUIT:
            self.is_done = True
        elif key == "s":
            self.order = ORDERS[(ORDERS.index(self.order) + 1) % len(ORDERS)]
        elif key == "/":
            self.is_typing, self.text = True, ""
        elif key == _ESCAPE:
            self.text = ""

    @property
    def line(self) -> str:
        """The keys, and the present choices."""
        text = f"{self.text}_" if self.is_typing else self.text or "none"
        return f"s order: {self.order}   / filter: {text}   q quit"

    def arranged(self, view: View) -> View:
        """The view with its rows in this order, and without those that the filter leaves out."""
        tables = {name: view[name] for name in _NAMES if isinstance(view.get(name), Sequence)}
        return {**view, **{name: self._rows(rows, _NAMES[name]) for name, rows in tables.items()}}

    def _rows(self, rows: Sequence[View], names: Sequence[str]) -> list[View]:
        text = self.text.casefold()
        kept = [row for row in rows if any(text in row[name].casefold() for name in names)]
        if self.order == _NAME:
            return sorted(kept, key=lambda row: [row[name] for name in names])
        column = _COLUMNS.get(self.order)
        if column is None or not any(column in row for row in kept):
            return kept
        return sorted(kept, key=lambda row: -(row.get(column) or 0))


@contextmanager
def keyboard() -> Iterator[Callable[[float], str]]:
    """Yield a function that waits for a number of seconds, and returns the keys typed meanwhile.

    If standard input is no terminal, it only waits. The terminal is restored afterwards.
    """
    if not sys.stdin.isatty():
        yield _without_keys
        return
    import termios
    import tty

    terminal = sys.stdin.fileno()
    former = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        yield lambda seconds: _typed(terminal, seconds)
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, former)


def _without_keys(seconds: float) -> str:
    time.sleep(seconds)
    return ""


def _typed(terminal: int, seconds: float) -> str:
    if not select.select([terminal], [], [], seconds)[0]:
        return ""
    try:
        data = os.read(terminal, 256)
    except OSError:  # the terminal is gone
        return QUIT
    return data.decode(errors="ignore") if data else QUIT


_COLOURS: Final = {"ok": "green", "degraded": "yellow", "failed": "bold red"}
_MOST_GROUPS: Final = 10
_HEALTH: Final = {"ok": "green", "restarting": "yellow", "hanging": "red", "stopped": "dim"}


def frame(view: View, keys: str = "") -> RenderableType:
    """Render ``view``; ``keys`` is a line of help."""
    parts: list[RenderableType] = [_head(view)]
    parts += [output.styled(keys, "dim")] if keys else []
    parts += _problems(view)
    if view.get("positions"):
        parts += [output.styled(""), _log(view), *_history(view), _lags(view)]
    if view.get("groups"):
        parts += [output.styled(""), _group_lines(view["groups"])]
    if view.get("replication") is not None:
        parts += [output.styled(""), statelines.lag_table(view["replication"])]
    parts += [output.styled(line) for line in statelines.bars(view["disks"])]
    parts += [output.styled(""), _processes(view["processes"])]
    if view.get("members") is not None:
        parts += [output.styled(""), _members(view), *_remarks(view)]
    return Group(*parts)


def _head(view: View) -> Text:
    who = "serve" if view["served_by"] else "a program"
    head = output.styled(f"{view['path']}  {who}, process {view['pid']}  {view['state']}  ")
    head.append(view["health"], _COLOURS.get(view["health"], ""))
    if view.get("started_ms"):
        head.append(f"  up {output.span(time.time() - view['started_ms'] / 1000)}")
    return head


def _problems(view: View) -> Iterator[Text]:
    for each in view["problems"]:
        yield output.styled(f"! {each}", "yellow")
    if not view.get("positions") and "masters" not in view:
        yield output.styled("no positions are there; it is no lakelog")


def _log(view: View) -> output.Columns:
    """The positions of the log, and their rates."""
    counts, rates = view["positions"], view.get("rates", {})
    table = output.Columns(
        "", "appended", "flushed", "dispatched", "records", "syncs", "flush latency"
    )
    table.add_row(
        "now",
        *(str(counts[name]) for name in ("appended", "flushed", "dispatched", "records", "syncs")),
        output.milliseconds(view.get("flush", {}).get("mean_ms")),
    )
    if rates:
        grown = (f"{output.size(rates[name])}/s" for name in ("appended", "flushed", "dispatched"))
        table.add_row("rate", *grown, f"{rates['records']:.0f}/s", f"{rates['syncs']:.1f}/s", "")
    return table


def _history(view: View) -> Iterator[Text]:
    """The rates of the last frames, the newest on the right."""
    for name, unit in (("records", "/s"), ("appended", " bytes/s")):
        values = [each.get(name, 0.0) for each in view.get("history", ())]
        if len(values) > 1:
            most = f"at most {max(values):,.0f}{unit}"
            yield output.styled(f"{name:<8} {output.blocks(values)}  {most}")


def _group_lines(rows: Sequence[View]) -> output.Columns:
    """The consumer groups that are furthest behind."""
    table = output.Columns("group", "topic", "messages behind")
    for row in rows[:_MOST_GROUPS]:
        table.add_row(row["group"], row["topic"], f"{row['behind']:,}")
    if len(rows) > _MOST_GROUPS:
        table.add_row(f"and {len(rows) - _MOST_GROUPS} more", "", "")
    return table


def _lags(view: View) -> Text:
    lags = view["lags"]
    known = [f"not flushed {output.size(lags['flush_bytes'])}"]
    known.append(f"not dispatched {output.size(lags['dispatch_bytes'])}")
    known += [f"{name} {output.size(lag)} behind" for name, lag in lags["followers"].items()]
    return output.styled(f"lags: {', '.join(known)}")


def _members(view: View) -> output.Columns:
    """The processes that have the store open for writing."""
    table = output.Columns("has it open", "pid", "times", "for all...")
    for row in view["members"]:
        table.add_row(row["name"], str(row["pid"]), str(row["opens"]), ", ".join(row["does"]))
    return table


def _remarks(view: View) -> Iterator[Text]:
    """Unusual findings, and limits of the view."""
    hidden, appending = view["members_not_seen"], view["appending"]
    if hidden:
        yield output.styled(f"{hidden} more have it open, of other users or containers")
    elif hidden is None:
        what = "whether more have it open is not known: /proc/locks says nothing of it"
        yield output.styled(what)
    if appending is not None:
        since = output.span(max(0.0, time.time() - appending["since_ms"] / 1000))
        what = f"! process {appending['pid']} has been appending for {since}"
        yield output.styled(what, "yellow")
    for row in view["deleted"]:
        what = f"{row['files']} deleted files, {output.size(row['bytes'])}"
        yield output.styled(f"process {row['pid']} ({row['name']}) keeps {what}")
    if view["processes_not_readable"]:
        count = view["processes_not_readable"]
        others = "one other process" if count == 1 else f"{count} other processes"
        yield output.styled(f"deleted files that {others} may keep cannot be seen")


def _processes(rows: Sequence[View]) -> output.Columns:
    table = output.Columns(
        "process", "pid", "kind", "state", "health", "cpu", "memory", "restarts", "says..."
    )
    for row in rows:
        cpu = row.get("cpu_percent")
        table.add_row(
            row["name"],
            str(row["pid"] or "-"),
            row["kind"],
            row["state"],
            output.styled(row["health"], _HEALTH.get(row["health"], "")),
            "-" if cpu is None else f"{cpu:.1f} %",
            output.size(row.get("rss_bytes")),
            str(row.get("restarts", "-")),
            row.get("says") or row.get("last_exit") or "",
        )
    return table


_HISTORY: Final = 60
"""Frames whose rates are shown."""


class ProcessRow(TypedDict):
    """A process of a store in use: its owner, a service, a follower or a child of these.

    :ivar pid: null if it does not run
    :ivar cpu_percent: CPU usage in percent of one core, with its children
    :ivar restarts: number of restarts
    :ivar hangs: number of times that it was killed because it hung
    :ivar says: its last ``STATUS=`` text
    """

    name: str
    kind: Literal["owner", "service", "follower", "child"]
    pid: int | None
    state: str
    health: str
    cpu_percent: NotRequired[float | None]
    rss_bytes: NotRequired[int | None]
    restarts: NotRequired[int]
    hangs: NotRequired[int]
    started_ms: NotRequired[int | None]
    says: NotRequired[str | None]
    last_exit: NotRequired[str | None]


class MemberRow(TypedDict):
    """A process that has the store open for writing.

    :ivar opens: number of opens
    :ivar does: its exclusive roles, such as services
    """

    pid: int
    name: str
    opens: int
    does: list[str]


class RetainedRow(TypedDict):
    """Deleted files that a process keeps on the disk."""

    pid: int
    name: str
    files: int
    bytes: int


class AppendingRow(TypedDict):
    """A process in a slow append, and the start of that append."""

    pid: int
    since_ms: int


class PositionLags(TypedDict):
    """Lags of positions, in bytes.

    :ivar followers: lag of each follower, by the name of its pin
    :ivar dispatch_ms: lag in ms, only with ``lakelog serve``
    """

    flush_bytes: int
    dispatch_bytes: int
    dispatch_ms: NotRequired[float | None]
    followers: dict[str, int]


class FlushRow(TypedDict):
    """The mean duration of a sync; null if there was none."""

    mean_ms: float | None


class TopView(TypedDict):
    """The present state of a store in use.

    :ivar served_by: serve, or null if the owner is another program
    :ivar positions: positions in bytes, and counts since the store was opened
    :ivar rates: their increase in a second
    :ivar members_not_seen: number of processes of other users; null if unknown
    :ivar services: id of the process that dispatches and deletes
    :ivar processes_not_readable: number of processes whose files are not readable
    :ivar masters: state of each master, for a folder of copies
    """

    served_by: Literal["serve"] | None
    path: str
    pid: int | None
    heartbeat_ms: int | None
    state: str
    health: Literal["ok", "degraded", "failed"]
    problems: list[str]
    disks: list[statelines.DiskRow]
    processes: list[ProcessRow]
    replication: statelines.Replication | None
    groups: list[statelines.GroupLag]
    positions: NotRequired[dict[str, int]]
    rates: NotRequired[dict[str, float]]
    flush: NotRequired[FlushRow]
    lags: NotRequired[PositionLags]
    members: NotRequired[list[MemberRow]]
    members_not_seen: NotRequired[int | None]
    services: NotRequired[int | None]
    appending: NotRequired[AppendingRow | None]
    deleted: NotRequired[list[RetainedRow]]
    processes_not_readable: NotRequired[int]
    version: NotRequired[int]
    lakelog: NotRequired[str]
    start_ticks: NotRequired[int]
    started_ms: NotRequired[int]
    log_lines_dropped: NotRequired[int]
    masters: NotRequired[Any]


@output.prints(TopView, is_document=True)
def top(
    store: GivenStore,
    once: Annotated[bool, typer.Option("--once", help="Print one frame, and end.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between frames.")] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Show a store in use: rates, lags of groups and copies, flush latency, disks.

    Any owner can be shown; 'lakelog serve' reports most. Keys: s for the next order of the tables,
    / for a filter by name (Enter ends it, Escape removes it), q to quit. With --json, with --once,
    and if the output is no terminal, one view is printed. It has the fields of lakelog/serve.json,
    and the processes that have the store open; only root sees those of other users. For a folder of
    copies of several masters, it shows their programs; each copy has its own view.
    Exit code 3 if no process has the store open.
    """
    given = store.arguments
    watcher = Watcher.of(store.path, **given)
    history: deque[dict[str, float]] = deque(maxlen=_HISTORY)

    def with_lags(view: dict[str, Any]) -> dict[str, Any]:
        history.append(view.get("rates", {}))
        copies, groups = statelines.copy_lags(watcher.path, **given), _groups(watcher.path, given)
        return {**view, "replication": copies, "groups": groups}

    console = Console(markup=False, highlight=False)
    if as_json or once or not console.is_terminal:
        if watcher.needs_two:  # without ``serve``, rates need two samples
            watcher.view()
            time.sleep(interval)
        view = with_lags(watcher.view())
        output.write_document(view) if as_json else console.print(frame(view))
        return
    _watch(console, interval, lambda: {**with_lags(watcher.view()), "history": history})


def _watch(console: Console, interval_seconds: float, look: Callable[[], dict[str, Any]]) -> None:
    """Show frames until the reader quits; a key changes the frame at once, the numbers in time."""
    controls, view = Controls(), look()
    with (
        keyboard() as typed,
        Live(frame(view, controls.line), console=console, auto_refresh=False, screen=True) as live,
    ):
        due = time.monotonic() + interval_seconds
        while not controls.is_done:
            controls.press(typed(max(0.0, due - time.monotonic())))
            if time.monotonic() >= due:
                view, due = look(), time.monotonic() + interval_seconds
            live.update(frame(controls.arranged(view), controls.line), refresh=True)


def _groups(path: Path, given: dict[str, Any]) -> list[dict[str, Any]]:
    """The lags of consumer groups; none of a directory without queues, such as one of copies."""
    try:
        with lakelog.open(path, mode="read", **given) as reader:
            return [attrs.asdict(each) for each in statelines.group_lags(reader)]
    except LakelogError:
        return []
