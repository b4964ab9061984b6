"""The log of ``lakelog serve``: one line per record, as text or JSON, without blocking callers.

Callers queue formatted lines for one thread. If that is blocked (by a full pipe) or fails (on a
full disk), lines are dropped and counted: logging must not stop a store.

A JSON line has ``time`` (ISO 8601, UTC), ``level``, ``logger`` and ``message``. Then follow the
fields of the event, such as ``event``, ``service`` and ``pid``, and ``error`` with a traceback.
Settings and arguments of services are not logged, because they may contain secrets.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener
from pathlib import Path
from queue import Full, Queue
from typing import Any, Final

from lakelog.errors import ThreadNotStarted

FIELDS: Final = "fields"
"""The attribute of a log record that holds its fields; set by ``extra=fields(...)``."""
MOST_LINES: Final = 10_000
_MODE: Final = 0o640
_STDERR: Final = 2


def fields(event: str, **more: object) -> dict[str, Any]:
    """The event and its fields, for ``extra=`` of a logging call."""
    return {FIELDS: {"event": event, **more}}


class JsonFormatter(logging.Formatter):
    """Formats each record as a JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as a single line."""
        line = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, separators=(",", ":"), default=str)


class TextFormatter(logging.Formatter):
    """Formats each record as a line of text, followed by any traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Format time, level, service and message."""
        named = _fields(record)
        who = f"{named['service']}: " if "service" in named else ""
        line = f"{_time(record)} {record.levelname:<7} {who}{record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


_OWN_LINE: Final = re.compile(
    r"\d{4}-\d\d-\d\dT\S+ (DEBUG|INFO|WARNING|ERROR|CRITICAL) +(.*)", re.DOTALL
)
_LEVELS: Final = logging.getLevelNamesMapping()


def read_line(line: str) -> tuple[int, str]:
    """The level and the rest of a line of :class:`TextFormatter`; other lines are information.

    >>> read_line("2026-11-24T10:30:49.123+00:00 ERROR   lake: no room")
    (40, 'lake: no room')
    >>> read_line("no room")
    (20, 'no room')
    """
    found = _OWN_LINE.fullmatch(line)
    return (_LEVELS[found[1]], found[2]) if found else (logging.INFO, line)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    found: Mapping[str, Any] = getattr(record, FIELDS, {})
    return found


def open_target(path: Path | None) -> int:
    """Open a descriptor for the file, to append to it, or for stderr; raises ``OSError``."""
    if path is None:
        return os.dup(_STDERR)
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)


class _LineWriter(QueueListener):
    """The thread that writes queued lines, unbuffered: a failed write affects one line only.

    It is no ``logging.Handler``: Python locks each one at exit, and would wait for a blocked write.
    """

    def __init__(self, lines: Queue[Any], path: Path | None, dropped: Callable[[], None]) -> None:
        super().__init__(lines)
        self.is_old = False
        self._path = path
        self._dropped = dropped
        self._fd = open_target(path)
        try:
            self.start()
        except (RuntimeError, MemoryError) as error:
            os.close(self._fd)
            raise ThreadNotStarted("lakelog-log", error) from error

    def handle(self, record: logging.LogRecord) -> None:
        """Write a record that was formatted before."""
        data = f"{record.msg}\n".encode(errors="backslashreplace")
        try:
            if self.is_old:
                self._reopen()
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            self._dropped()

    def _reopen(self) -> None:
        self.is_old = False
        fresh = open_target(self._path)
        os.close(self._fd)
        self._fd = fresh


class LogWriter(QueueHandler):
    """Queues log records for a thread that writes them.

    :ivar dropped: number of lines that could not be written
    """

    def __init__(self, path: Path | None = None) -> None:
        self._lines: Queue[Any] = Queue(MOST_LINES)
        super().__init__(self._lines)
        self.dropped = 0
        self._writer = _LineWriter(self._lines, path, self._drop)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # logging's name
        """Count a record that cannot be formatted, or for which the queue has no room."""
        del record
        self._drop()

    def reopen(self) -> None:
        """Reopen the file by its name, after the former one was renamed."""
        self._writer.is_old = True

    def finish(self, timeout_seconds: float) -> None:
        """Write the queued lines, waiting no longer than ``timeout_seconds``.

        ``QueueListener.stop`` would wait for as long as the file is blocked.
        """
        with suppress(Full):
            self._lines.put(None, timeout=timeout_seconds)  # ends the listener
            with self._lines.all_tasks_done:
                self._lines.all_tasks_done.wait_for(
                    lambda: not self._lines.unfinished_tasks, timeout_seconds
                )

    def _drop(self) -> None:
        self.dropped += 1


def start_log(level: str, path: Path | None = None, *, as_json: bool = False) -> LogWriter:
    """Send all log records of this process to the file ``path``, or stderr; raises ``OSError``."""
    writer = LogWriter(path)
    writer.setFormatter(JsonFormatter() if as_json else TextFormatter())
    root = logging.getLogger()
    root.addHandler(writer)
    root.setLevel(level)
    return writer


def stop_log(writer: LogWriter, timeout_seconds: float = 2.0) -> None:
    """Detach the writer, and write its queued lines."""
    logging.getLogger().removeHandler(writer)
    writer.finish(timeout_seconds)
