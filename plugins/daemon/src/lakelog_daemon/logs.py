"""The log of ``lakelog serve``: a line each, as text or JSON, and never in anybody's way.

Whoever logs hands the line to one thread, which writes. If that gets stuck (a pipe that nobody
reads) or fails (a full disk), lines are dropped and counted: a store must not stop over its log.

A line of JSON has ``time`` (ISO 8601, UTC), ``level``, ``logger``, ``message``, then the fields of
what happened, such as ``event``, ``service`` and ``pid``, and ``error`` with a traceback. Neither
settings nor arguments of services are logged, as there may be secrets among them.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from queue import Full, Queue
from threading import Thread
from typing import Any, Final

import attrs

from lakelog.errors import ThreadNotStarted
from lakelog.runtime.threads import started

FIELDS: Final = "fields"
"""The attribute of a log record that has its fields; ``extra=fields(...)`` makes it."""
MOST_LINES: Final = 10_000
_MODE: Final = 0o640
_STDERR: Final = 2


def fields(event: str, **more: object) -> dict[str, Any]:
    """For ``extra=`` of a logging call: what happened, for programs."""
    return {FIELDS: {"event": event, **more}}


class JsonFormatter(logging.Formatter):
    """One JSON object a record."""

    def format(self, record: logging.LogRecord) -> str:
        """On one line."""
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
    """A line for people; a traceback below it."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, who, what."""
        named = _fields(record)
        who = f"{named['service']}: " if "service" in named else ""
        line = f"{_time(record)} {record.levelname:<7} {who}{record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    found: Mapping[str, Any] = getattr(record, FIELDS, {})
    return found


@attrs.frozen
class Target:
    """Where lines go: a file, appended to, or stderr."""

    path: Path | None = None

    def open(self) -> int:
        """A descriptor; raises ``OSError``."""
        if self.path is None:
            return os.dup(_STDERR)
        return os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)


class LogWriter(logging.Handler):
    """Writes what is logged, in a thread of its own.

    :ivar dropped: how many lines could not be written
    """

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.dropped = 0
        self._target = target
        self._fd = target.open()
        self._lines: Queue[bytes | None] = Queue(MOST_LINES)
        self._is_old = False
        thread = Thread(target=self._run, name="lakelog-log", daemon=True)
        try:
            self._thread = started(thread)
        except ThreadNotStarted:
            os.close(self._fd)
            raise

    def emit(self, record: logging.LogRecord) -> None:
        """Hand over a line; drop it if the thread is that far behind."""
        try:
            self._lines.put_nowait(self.format(record).encode(errors="backslashreplace") + b"\n")
        except Full:
            self.dropped += 1
        except Exception:  # noqa: BLE001  # a record that cannot be formatted harms nobody
            self.dropped += 1

    def reopen(self) -> None:
        """Go on in a new file of the same name, once the former was moved away."""
        self._is_old = True

    def finish(self, timeout_seconds: float) -> None:
        """Write what is there, and wait for it no longer than that."""
        with suppress(Full):
            self._lines.put(None, timeout=timeout_seconds)
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                if self._is_old:
                    self._change()
                self._write(line)
            except OSError:
                self.dropped += 1

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._fd, data) :]

    def _change(self) -> None:
        self._is_old = False
        fresh = self._target.open()
        os.close(self._fd)
        self._fd = fresh


def start_log(target: Target, level: str, *, as_json: bool) -> LogWriter:
    """Send everything that is logged in this process to ``target``; raises ``OSError``."""
    writer = LogWriter(target)
    writer.setFormatter(JsonFormatter() if as_json else TextFormatter())
    root = logging.getLogger()
    root.addHandler(writer)
    root.setLevel(level)
    return writer


def stop_log(writer: LogWriter, timeout_seconds: float = 2.0) -> None:
    """Write what is there, and log no more there."""
    logging.getLogger().removeHandler(writer)
    writer.finish(timeout_seconds)
