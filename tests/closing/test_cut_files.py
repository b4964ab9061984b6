"""A file of a store that another program cuts while it is read: the reader lives, and says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
from lakelog import Message

pytestmark = pytest.mark.both_ways

SMALL: Final[dict[str, Any]] = {
    "segment_size_bytes": 1 << 16,
    "hash_index": {"slots": 50, "entries": 60},
    "consume-queue": {"file_entries": 64},
}
COUNT: Final = 150
READER: Final = """
import os, sys
from pathlib import Path
import lakelog
from lakelog.errors import LakelogError

path, mode, name, length = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
store = lakelog.open(path, mode=mode, **eval(sys.argv[5]))
calls = {
    "get": lambda at: store.get("t", 0, at, 32),
    "tags": lambda at: store.get("t", 0, at, 32, tags="a"),
    "columns": lambda at: store.get_columns("t", 0, at, 32),
    "query": lambda at: store.query("t", f"k{at}"),
    "time": lambda at: store.offset_by_time("t", 0, 1_764_000_000_000 + at),
    "scan": lambda at: list(store.scan()),
    "pieces": lambda at: list(store.scan_pieces()),
    "look_up": lambda at: store.look_up(0),
    "queues": lambda at: (store.topics(), store.queues("t")),
    "lag": lambda at: (store.dispatch_lag, store.flushed_offset, store.max_offset),
}
for at in range(0, 150, 50):
    for call in calls.values():
        call(at)
running = [store.scan(), store.scan_pieces(), store.read("t", 0)]
for each in running:
    next(each)
for file in sorted(path.glob(name)):
    if file.is_file():
        os.truncate(file, length)
for at in range(0, 150, 10):
    for kind, call in calls.items():
        try:
            call(at)
        except LakelogError as error:
            print(kind, type(error).__name__)
for each in running:
    try:
        for _ in each:
            pass
    except LakelogError as error:
        print("running", type(error).__name__)
print("lives")
os._exit(0)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with lakelog.open(tmp_path / "s", **SMALL) as store:
        for at in range(COUNT):
            store.put(Message("t", b"x" * 1000, keys=f"k{at}", tags="a", queue_id=0))
        assert store.wait_dispatched()
    return tmp_path / "s"


@pytest.mark.parametrize("length", [0, 30, 5000])
@pytest.mark.parametrize(
    "name",
    ["commitlog/*", "consumequeue/*/*/*", "index/*", "checkpoint", "config/*", "lakelog/*.json"],
)
@pytest.mark.parametrize("mode", ["read", "write"])
def test_who_reads_lives(path: Path, name: str, length: int, mode: str) -> None:
    """Also in the owner, as long as it does not put."""
    words = [READER, str(path), mode, name, str(length), repr(SMALL)]
    found = subprocess.run(
        [sys.executable, "-c", *words], check=False, capture_output=True, text=True, timeout=120
    )
    assert found.stdout.endswith("lives\n"), (found.returncode, found.stdout, found.stderr)
    assert found.returncode == 0
