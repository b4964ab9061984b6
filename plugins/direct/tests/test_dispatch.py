"""Queues and index contain nothing that the files of the log lack."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lakelog import Message
from plugins.direct.tests.test_store import KEEPING, LATE, NEVER, opened
from tests.support.waiting import until


@pytest.mark.parametrize("writer", KEEPING)
def test_what_is_not_committed_is_not_dispatched(tmp_path: Path, writer: str) -> None:
    with opened(tmp_path, writer, NEVER, **LATE) as store:
        end = store.put(Message("orders", b"kept in the process", queue_id=0)).end_offset
        assert store.max_offset == end
        time.sleep(0.1)
        assert store.dispatched_offset == 0
        assert store.queue_bounds("orders", 0) is None or store.queue_bounds("orders", 0) == (0, 0)


@pytest.mark.parametrize("writer", KEEPING)
def test_who_waits_for_the_queues_has_it_committed(tmp_path: Path, writer: str) -> None:
    with opened(tmp_path, writer, NEVER, **LATE) as store:
        store.put(Message("orders", b"kept in the process", queue_id=0))
        assert store.wait_dispatched(timeout_ms=20_000)
        assert [bytes(each.body) for each in store.get("orders", 0, 0, 10).messages] == [
            b"kept in the process"
        ]


@pytest.mark.parametrize("writer", KEEPING)
def test_a_commit_by_the_clock_lets_it_be_dispatched(tmp_path: Path, writer: str) -> None:
    with opened(tmp_path, writer, **LATE) as store:
        end = store.put(Message("orders", b"soon", queue_id=0)).end_offset
        until(lambda: store.dispatched_offset >= end)
