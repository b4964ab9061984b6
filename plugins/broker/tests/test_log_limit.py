"""Lines of the log that are alike are limited, and a log that nobody reads stops no broker."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from pathlib import Path

from lakelog_broker.embedded import INTERVAL_S, MOST_LINES, LineLimit
from plugins.broker.tests.raw_client import send
from plugins.broker.tests.support import PATIENCE_S


def _record(text: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("lakelog.broker", logging.WARNING, "", 0, text, arguments, None)


def test_lines_of_one_text_are_limited_and_counted() -> None:
    now_s = 0.0
    limit = LineLimit(lambda: now_s)
    passed = [limit.filter(_record("%s is late by %d%%", "x", n)) for n in range(MOST_LINES + 3)]
    assert passed == [True] * MOST_LINES + [False] * 3
    assert limit.filter(_record("another text"))
    now_s = INTERVAL_S
    first, second = (_record("%s is late by %d%%", "x", n) for n in (20, 21))
    assert limit.filter(first)
    assert limit.filter(second)
    assert first.getMessage() == "x is late by 20% (and 3 more)"
    assert second.getMessage() == "x is late by 21%"


def test_a_full_pipe_of_the_log_does_not_stop_the_broker(tmp_path: Path) -> None:
    """Nobody reads the program's stderr, which is full from the start."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while os.write(writing, b"x" * 4096):
            pass
    except BlockingIOError:
        os.set_blocking(writing, True)
    command = [sys.executable, "-m", "lakelog_cli.main", "broker", str(tmp_path / "store")]
    with subprocess.Popen(
        [*command, "--port", "0"], stdout=subprocess.PIPE, stderr=writing, text=True
    ) as process:
        os.close(writing)
        try:
            assert process.stdout is not None
            address = process.stdout.readline().rpartition(" ")[2].strip()
            for offset in range(3):
                _bad_client(address)  # a warning
                assert send(address, "orders", b"x") == offset
            process.terminate()
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
            os.close(reading)


def _bad_client(address: str) -> None:
    """A client that sends no frames, and waits until it is disconnected for that."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
        connection.sendall(b"\0" * 64)
        assert connection.recv(1) == b""
