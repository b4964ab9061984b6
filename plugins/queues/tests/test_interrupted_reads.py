"""A read of a process that dispatches on demand, which an exception of a handler ends."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

import lakelog
from lakelog import Message
from lakelog_testing.interrupting import interrupted
from tests.support.sampling import at_every, every

COUNT = 40
pytestmark = pytest.mark.both_ways


@at_every(61)
@pytest.mark.filterwarnings(  # Python loses an exception in the end of a dropped generator
    "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_the_next_read_takes_the_log_in_again(tmp_path: Path, stride: int) -> None:
    """No unit is missing or doubled."""
    with lakelog.open(tmp_path) as store:
        for number in range(COUNT):
            store.put(Message("t", b"%d" % number, keys=f"k{number}", queue_id=0))
    shutil.rmtree(tmp_path / "consumequeue")
    shutil.rmtree(tmp_path / "index", ignore_errors=True)
    expected = [b"%d" % number for number in range(COUNT)]
    for at in every(stride):
        with lakelog.open(tmp_path, mode="read") as reader:
            struck = interrupted(partial(reader.get, "t", 0, 0, COUNT), at)
            found = reader.get("t", 0, 0, COUNT).messages
            assert [bytes(each.body) for each in found] == expected, f"point {at}"
            assert [each.queue_offset for each in found] == list(range(COUNT)), f"point {at}"
            assert len(list(reader.query("t", "k7"))) == 1, f"point {at}"
        if struck.place is None:
            return
