"""What the owner asks of the operating system under load; needs strace."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from core.tests.attach.support import an_owner
from lakelog import MessageColumns
from lakelog.attach.producer import connect

BATCHES = 200
SIZE = 200


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_batches_need_next_to_no_system_calls(tmp_path: Path) -> None:
    counted = tmp_path / "counted"
    strace = ("strace", "-f", "-c", "-U", "name,calls", "-o", str(counted))
    columns = MessageColumns("t", [bytes(100)] * SIZE, queue_ids=0)
    with an_owner(tmp_path / "idle", wrap=strace) as owner:
        owner.end()
    to_open = calls(counted)
    with an_owner(tmp_path / "busy", wrap=strace) as owner:
        producer = connect(tmp_path / "busy")
        futures = [producer.put_batch_async(columns) for _ in range(BATCHES)]
        assert all(future.result(60) for future in futures)
        producer.close()
        owner.end()
    per_message = (calls(counted) - to_open) / (BATCHES * SIZE)
    assert per_message < 0.1


def calls(counted: Path) -> int:
    found = re.search(r"^total\s+(\d+)", counted.read_text(), re.MULTILINE)
    assert found, counted.read_text()
    return int(found[1])
