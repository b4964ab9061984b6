"""What an owner's log says when puts stop being taken, and when they are taken again."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Any

import pytest

from core.tests.store.support import open_small
from lakelog import Message, PutRefused
from lakelog.log.health import Health
from lakelog.log.segments import Segments
from tests.support.waiting import until


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage().partition(": ")[2] for each in caplog.records]


def test_a_pause_is_told_at_its_begin_and_at_its_end(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.INFO, "lakelog")
    health = Health(tmp_path, lambda _: None)
    for why in ("0.91 of /d is used", "0.92 of /d is used"):
        health.pause(why)
    health.unpause()
    health.unpause()
    health.pause("full")
    assert told(caplog) == [
        "puts are refused: 0.91 of /d is used",
        "puts are accepted again",
        "puts are refused: full",
    ]


def test_no_room_for_a_segment_is_told_once_and_so_is_its_end(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "lakelog")

    body = b"x" * 10_000
    with open_small(tmp_path) as store:
        store.put(Message("t", body))
        with monkeypatch.context() as patch:
            patch.setattr(Segments, "prepare_roll", _full)
            for _ in range(3):
                with pytest.raises(PutRefused, match="No space left"):
                    store.put(Message("t", body))
        until(lambda: len(_of_puts(caplog)) == 1)
        store.put(Message("t", body))
        store.put(Message("t", body))
    until(lambda: len(_of_puts(caplog)) == 2)
    refused, again = _of_puts(caplog)
    assert refused.startswith("puts are refused: no room for the next segment of 16384 bytes")
    assert again == "puts are accepted again: there is room for the log"


def _of_puts(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each for each in told(caplog) if each.startswith("puts")]


def test_a_handler_that_puts_into_the_store_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = list[BaseException]()

    class Putting(logging.Handler):
        def emit(self, _record: logging.LogRecord) -> None:
            try:
                store.put(Message("log", b"x" * 10_000))
            except PutRefused as error:
                errors.append(error)

    handler, body = Putting(), b"x" * 10_000
    with open_small(tmp_path) as store:
        store.put(Message("t", body))
        logging.getLogger("lakelog").addHandler(handler)
        try:
            monkeypatch.setattr(Segments, "prepare_roll", _full)
            with pytest.raises(PutRefused):
                store.put(Message("t", body))
            until(lambda: len(errors) == 1)
        finally:
            logging.getLogger("lakelog").removeHandler(handler)


def _full(*_: object) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")
