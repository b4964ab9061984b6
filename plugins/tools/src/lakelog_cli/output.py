"""The output of all commands: lines of text, messages, tables, JSON, files, charts and progress.

Text may come from messages, and must not control a terminal: every line goes through
:func:`shown`. A table has headings on a terminal; elsewhere it has one line per row, with fields
separated by tabs, not wrapped or cut. Rich is imported only for a terminal, as it takes long.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NotRequired, TextIO, TypedDict, TypeVar

import attrs
import typer

from lakelog.errors import LakelogError
from lakelog.format.layout import COMMITLOG_DIR
from lakelog_cli import exitcodes

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.progress import Progress, TaskID
    from rich.table import Table
    from rich.text import Text

    from lakelog.message import StoredMessage


# --- text ---


def shown(text: str) -> str:
    r"""``text`` with control, format and unassigned characters written as escapes.

    >>> shown("a\tb"), shown("\x1b[2J"), shown("\u202etxt"), shown("标签")
    ('a\\tb', '\\x1b[2J', '\\u202etxt', '标签')
    """
    if text.isprintable():
        return text
    escaped = (each.encode("unicode_escape").decode("ascii") for each in text)
    return "".join(a if a.isprintable() else b for a, b in zip(text, escaped, strict=True))


def print_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """Print each line, on stdout or stderr; a line break inside of one is escaped."""
    for line in lines:
        typer.echo(shown(line), err=err)


def print_line(line: str = "", *, err: bool = False) -> None:
    """Print one line, on stdout or stderr."""
    print_lines([line], err=err)


def is_terminal(stream: TextIO) -> bool:
    """Whether a stream is a terminal; with ``FORCE_COLOR`` it counts as one, as for Rich."""
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()


# --- messages ---

_BODY_SHOWN: Final = 60
"""Number of characters (or bytes, if binary) of a body in a line of text."""


def write_messages(messages: Iterable[StoredMessage], *, as_json: bool) -> int:
    """Print each message as it arrives, as a line of text or of JSON; returns their number."""
    count = 0
    for message in messages:
        if as_json:
            write_lines([message_row(message)])
        else:
            print_line(_for_people(message))
        count += 1
    return count


class MessageRow(TypedDict):
    """A stored message.

    :ivar queue_offset: its number in its queue
    :ivar physical_offset: start of its record
    :ivar size: length of its record, in bytes
    :ivar message_id: RocketMQ's offset message id
    :ivar body: the body, if it is UTF-8
    :ivar body_base64: the body in base64, if it is not UTF-8
    :ivar reconsume_times: number of redeliveries
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    message_id: str
    body: NotRequired[str]
    body_base64: NotRequired[str]
    properties: dict[str, str]
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: str
    store_timestamp_ms: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int


def message_row(message: StoredMessage) -> dict[str, Any]:
    """A message with the field names of ``lakelog.StoredMessage``."""
    row: dict[str, Any] = {}
    for name in MessageRow.__annotations__:
        if name == "body":
            row |= _body(message.body)
        elif name != "body_base64":
            row[name] = getattr(message, name)
    return row


def _body(body: bytes) -> dict[str, str]:
    """The body as text if it is UTF-8, otherwise in base64 under another name."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode("ascii")}


def _for_people(message: StoredMessage) -> str:
    """The position, tags, keys, and the start of the body."""
    place = f"{message.physical_offset} {message.topic}/{message.queue_id}@{message.queue_offset}"
    words = [f"tags={message.tags}"] if message.tags else []
    words += [f"keys={','.join(message.keys)}"] if message.keys else []
    return " ".join([place, *words, _start(message.body)])


def _start(body: bytes) -> str:
    r"""The start of a body, in quotes: as text if it is UTF-8, otherwise as a bytes literal.

    >>> _start("für 5 €".encode()), _start(b"\xe4"), _start(b"a\n\x1b[2J")
    ("'für 5 €'", "b'\\xe4'", "'a\\n\\x1b[2J'")
    """
    try:
        whole: str | bytes = body.decode()
    except UnicodeDecodeError:
        whole = body
    more = f"... ({len(body)} bytes)" if len(whole) > _BODY_SHOWN else ""
    return f"{whole[:_BODY_SHOWN]!r}{more}"


# --- JSON and files ---


_ATTRIBUTE: Final = "printed"
Function = TypeVar("Function", bound=Callable[..., None])


@attrs.frozen
class Printed:
    """The output of a command with ``--json``.

    :ivar kinds: the classes of its objects
    :ivar is_document: whether it is one indented object, and not one object a line
    :ivar is_always: whether it is JSON without the option, too
    """

    kinds: tuple[type, ...]
    is_document: bool
    is_always: bool


def prints(
    *kinds: type, is_document: bool = False, is_always: bool = False
) -> Callable[[Function], Function]:
    """Declare the output of a command; see :class:`Printed`. Without classes it is any object."""

    def marked(function: Function) -> Function:
        setattr(function, _ATTRIBUTE, Printed(kinds, is_document, is_always))
        return function

    return marked


def printed_by(callback: object) -> Printed | None:
    """The declared output of a command's function; ``None`` if none was declared."""
    found = getattr(callback, _ATTRIBUTE, None)
    return found if isinstance(found, Printed) else None


class FileNotWritten(LakelogError):
    """A file that a user named cannot be written."""

    exit_code = exitcodes.NO_OUTPUT


def write_lines(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print one JSON object per line, in ASCII; all lines are flushed on return."""
    sys.stdout.writelines(
        f"{json.dumps(row, separators=(',', ':'), default=plain_value)}\n" for row in rows
    )
    sys.stdout.flush()


def write_result(
    row: Mapping[str, Any],
    text: str | Iterable[str] = (),
    *,
    as_json: bool,
    is_document: bool = False,
) -> None:
    """Print the one result of a command: ``row``, or else a line of text, several, or none.

    :param is_document: whether the row is printed as an indented document, and not in one line
    """
    if as_json:
        write_document(row) if is_document else write_lines([row])
    else:
        print_lines([text] if isinstance(text, str) else text)


def exit_if_found(finding: object) -> None:
    """End the command with the exit code of a finding, if there is one."""
    if finding:
        raise typer.Exit(exitcodes.FOUND)


def write_document(document: object) -> None:
    """Print one indented JSON document, in ASCII."""
    sys.stdout.write(f"{json.dumps(document, indent=2, default=plain_value)}\n")


def plain_value(value: Any) -> Any:
    """A value of a setting or of a table as a value that JSON has.

    Bytes are UTF-8 text, or else hexadecimal digits; times and dates are in ISO 8601.
    """
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, bytes | bytearray | memoryview):
        return _text(bytes(value))
    if isinstance(value, date):
        return value.isoformat()
    if attrs.has(type(value)):
        value = attrs.asdict(value)
    if isinstance(value, Mapping):
        return {key: plain_value(item) for key, item in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [plain_value(item) for item in value]
    return value if isinstance(value, str | int | float | None) else str(value)


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.hex()


def write_file(path: Path, text: str) -> None:
    """Write a whole file; on an error the former one stays. Raises :class:`FileNotWritten`.

    A device or a pipe is written to directly: a rename would replace it. A path in a store
    directory is refused: the file could replace a segment or the checkpoint.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        for store in target.parents:
            if (store / COMMITLOG_DIR).is_dir():
                raise FileNotWritten(
                    f"{path} cannot be written: it is in the store {store}; name a file elsewhere"
                )
        if target.exists() and not target.is_file():
            target.write_text(text)
            return
        temporary.write_text(text)
        temporary.replace(target)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise FileNotWritten(f"{path} cannot be written: {error.strerror or error}") from None


# --- tables ---

NOTHING: Final = "-"
"""Printed for a missing value."""
_GAP: Final = 2


def write_rows(
    rows: Sequence[Mapping[str, Any]], *, names: Sequence[str] | None = None, as_json: bool = False
) -> None:
    """Print ``rows``, which have the same names.

    :param names: the columns, if headings are to be shown for an empty result as well
    """
    if as_json:
        write_lines(rows)
        return
    if not is_terminal(sys.stdout):
        for row in rows:
            typer.echo("\t".join(map(_cell, row.values())))
    elif rows or names:
        from rich.console import Console

        console = Console(markup=False, highlight=False)
        console.print(_table(rows, list(rows[0]) if names is None else names))


def _table(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in names:
        right = bool(rows) and isinstance(rows[0][name], int | float)
        heading = styled(name.replace("_", " "))
        table.add_column(heading, justify="right" if right else "left")
    for row in rows:
        table.add_row(*(styled(_cell(row[name])) for name in names))
    return table


def _cell(value: object) -> str:
    """A value in one line."""
    if value is None:
        return NOTHING
    if isinstance(value, list | tuple | dict):
        return shown(json.dumps(value, default=plain_value, ensure_ascii=False))
    return shown(str(plain_value(value)))


def styled(text: str, style: str = "") -> Text:
    """A text of Rich with one style."""
    from rich.text import Text

    return Text(shown(text), style)


class Columns:
    """Rows of cells, fitted to the width at drawing time; the rightmost columns are omitted first.

    A truncated number would be wrong.

    :param names: names of the columns; a name that ends with ``...`` has text that may be cut
    """

    def __init__(self, *names: str) -> None:
        self._names = [name.removesuffix("...") for name in names]
        self._may_be_cut = [name.endswith("...") for name in names]
        self._rows: list[list[Text]] = []

    def add_row(self, *cells: str | Text) -> None:
        """Add a row with one cell per column."""
        self._rows.append([styled(each) if isinstance(each, str) else each for each in cells])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        """Yield the columns that fit."""
        from rich.table import Table

        widths = self._widths(options.max_width)
        table = Table(box=None, pad_edge=False)
        for name, _ in zip(self._names, widths, strict=False):
            table.add_column(name, no_wrap=True)
        for row in self._rows:
            table.add_row(*map(_cut, row, widths))
        yield table

    def _widths(self, room: int) -> list[int]:
        """The widths of the columns that fit, at least one; text columns share the rest."""
        widths, left = list[int](), room
        for at in range(len(self._names)):
            least, most = self._needs(at)
            if widths and least > left:
                break
            widths.append(min(most, max(left, least)))
            left -= widths[-1] + _GAP
        return widths

    def _needs(self, at: int) -> tuple[int, int]:
        name = len(self._names[at])
        most = max([name, *(row[at].cell_len for row in self._rows)])
        return (name if self._may_be_cut[at] else most), most


def _cut(cell: Text, width: int) -> Text:
    cut = cell.copy()
    cut.truncate(width, overflow="ellipsis")
    return cut


def labelled(label: str, text: str) -> str:
    """A line of a report about one thing: a label in a column of its own, and its text."""
    return f"  {label:<9} {text}"


# --- numbers and charts ---

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP: Final = 1024
_LEVELS: Final = " ▁▂▃▄▅▆▇█"


def size(count: float | None) -> str:
    """A size in bytes.

    >>> size(0), size(1023), size(1536), size(5 << 40), size(None)
    ('0 B', '1023 B', '1.5 KiB', '5.0 TiB', '-')
    """
    if count is None:
        return NOTHING
    unit = 0
    while count >= _STEP and unit < len(_UNITS) - 1:
        count, unit = count / _STEP, unit + 1
    return f"{count:.0f} {_UNITS[0]}" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"


def milliseconds(count: float | None) -> str:
    """A duration.

    >>> milliseconds(0.25), milliseconds(1500), milliseconds(None)
    ('0.25 ms', '1.50 s', '-')
    """
    if count is None:
        return NOTHING
    return f"{count:.2f} ms" if count < 1000 else f"{count / 1000:.2f} s"


def span(seconds: float) -> str:
    """A longer duration in its two largest units.

    >>> span(59), span(3600), span(90061)
    ('59 s', '1 h 0 min', '1 d 1 h')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def blocks(values: Sequence[float]) -> str:
    """A line of bars, as high as each value is beside the largest; only 0 is blank.

    >>> blocks([0, 1, 4, 8]), blocks([0, 0])
    (' ▁▄█', '  ')
    """
    most = max(values, default=0)
    last = len(_LEVELS) - 1
    return "".join(
        _LEVELS[max(value > 0, round(value / most * last)) if most else 0] for value in values
    )


def bar(share: float, width: int) -> str:
    """A bar that is full as far as ``share``, 0 to 1; the last mark needs all of it.

    >>> bar(0.5, 4), bar(0.99, 4)
    ('##..', '###.')
    """
    full = int(share * width)
    return "#" * full + "." * (width - full)


# --- progress ---


@attrs.frozen
class ProgressBar:
    """A bar on the terminal; without one nothing is shown."""

    _bar: Progress | None = None
    _task: TaskID | None = None

    def __call__(self, done: float, total: float | None = None) -> None:
        """Move it to the amount done; the total may become known later."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=total)

    def phase(self, words: str) -> None:
        """Restart it at zero, with another description."""
        if self._bar is not None and self._task is not None:
            self._bar.reset(self._task, total=None, description=words)


@contextmanager
def progress(
    words: str, total: float | None = None, *, hidden: bool = False
) -> Iterator[ProgressBar]:
    """Show a bar on stderr while the block runs; without a total it only indicates activity.

    Nothing is shown if stderr is no terminal.
    """
    if hidden or not is_terminal(sys.stderr):
        yield ProgressBar()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        yield ProgressBar(bar, bar.add_task(words, total=total))
