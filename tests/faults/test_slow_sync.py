"""A sync that takes seconds: who waits is answered in time, who does not wait goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.faults.checking import check_recovered
from tests.faults.conftest import Workers

WRITERS: Final = ("file", "mmap", "staged")
TIMEOUT_MS: Final = 200
IN_TIME_SECONDS: Final = 1.5
"""Less than the 5 s that the sync takes."""


@pytest.mark.parametrize("writer", WRITERS)
def test_waiters_end_by_their_timeout_while_others_go_on(
    faulty: Workers, tmp_path: Path, writer: str
) -> None:
    path = tmp_path / "store"
    section = {"sync_flush_timeout_ms": TIMEOUT_MS}
    settings = {"writer": writer, "flush": "group-commit", "group-commit": section}
    outcome = faulty.run(
        path, settings, workload="slow", call="fdatasync", error="SLOW", below="commitlog"
    )
    late = outcome.told("failed")
    assert {event["failed"] for event in late} == {f"first-w{at}" for at in range(4)}
    assert {event["why"] for event in late} == {"FLUSH_DISK_TIMEOUT"}
    assert max(event["seconds"] for event in late) < IN_TIME_SECONDS
    assert outcome.acks == [f"first-n{at}" for at in range(200)]
    assert max(event["seconds"] for event in outcome.told("ack")) < IN_TIME_SECONDS
    check_recovered(path, settings, [*outcome.acks, *(event["failed"] for event in late)])
