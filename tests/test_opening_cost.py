"""Bytes that are read to open a store, whatever the length of its files: counted by the kernel.

Each is counted in a process of its own, which has opened and read another store before, so that
no import counts. What is imported is counted in processes that have opened none.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
from lakelog import Message
from lakelog.recovery.clean_stop import CLEAN_STOP_FILE

MIB: Final = 1 << 20
SMALL: Final = 16 * MIB
LARGE: Final = 1024 * MIB
MOST_BYTES: Final = 192 << 10
"""Read for one open and close; nearly all are pages of 4 KiB of small files."""
MOST_FAULTS: Final = 4096
"""Pages of 4 KiB that are touched: a map of a large file that is looked through has 262,144."""
ROUNDS: Final = "3"
"""The least of so many counts."""
PROGRAM: Final = """
import json, resource, sys
from pathlib import Path
import lakelog, numpy

read_text, not_counted = Path.read_text, 0

def read_text_of(path, **more):  # the locks of all processes: as long as other tests make it
    global not_counted
    text = read_text(path, **more)
    not_counted += len(text) if str(path) == "/proc/locks" else 0
    return text

Path.read_text = read_text_of

def reads():
    lines = open("/proc/self/io").read().splitlines()
    read = next(int(line.split()[1]) for line in lines if line.startswith("rchar"))
    return read - not_counted, resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def counted(action):
    before = reads()
    action()
    return [after - first for after, first in zip(reads(), before)]

def own(path):
    with lakelog.open(path) as store:
        return store.recovery

def find(path):
    with lakelog.open(path, mode="read") as store:
        assert len(list(store.query("t", "k0"))) == 1
        assert store.get("t", 0, 0, 1).messages
        store.max_offset, store.min_offset, store.topics(), store.queues()

def append(path):
    with lakelog.open(path) as store:
        store.put(lakelog.Message("t", b"again", keys="k", queue_id=0))

def dry(path):
    lakelog.recover(path, dry_run=True)

rounds = int(sys.argv[3]) if sys.argv[3:] else 1

def least(way):  # without the reads of a clock's thread, which come now and then
    return [min(each) for each in zip(*(counted(lambda: way(sys.argv[2])) for _ in range(rounds)))]

ways = {"own": own, "find": find, "append": append, "own again": own, "dry run": dry}
for each in ways.values():
    each(sys.argv[1])
print(json.dumps({name: least(way) for name, way in ways.items()}))
"""


def a_store(path: Path, size_bytes: int, segments: int = 1) -> None:
    """Closed cleanly; its segments but the last one are full."""
    with lakelog.open(path, segment_size_bytes=size_bytes, preallocate=False) as store:
        body, number = bytes(min(size_bytes // 4, 3 * MIB)), 0
        while store.max_offset < (segments - 1) * size_bytes:
            store.put(Message("t", body, queue_id=0, keys=f"k{number}"))
            number += 1
        store.put(Message("t", b"last", queue_id=0, keys=f"k{number}"))


def counted(warm: Path, store: Path, program: str = PROGRAM, *more: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", program, str(warm), str(store), *more],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def a_store_without_a_note(path: Path, size: int) -> None:
    """Half of its segment is written, but not by a put."""
    a_store(path, size)
    with (path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(size // 2)
        file.write(bytes(size // 2))  # else a file system that knows what was written reads nothing
    (path / "lakelog" / CLEAN_STOP_FILE).unlink()


@pytest.fixture
def small(tmp_path: Path) -> Path:
    a_store(tmp_path / "small", SMALL)
    return tmp_path / "small"


def test_it_is_the_same_for_any_length_and_number_of_segments(small: Path, tmp_path: Path) -> None:
    a_store(tmp_path / "large", LARGE)
    a_store(tmp_path / "one", MIB)
    a_store(tmp_path / "many", MIB, 16)
    found = {
        each: counted(small, tmp_path / each, PROGRAM, ROUNDS)
        for each in ("small", "large", "one", "many")
    }
    for name, (read, _) in found["small"].items():
        assert read < MOST_BYTES, found
        assert abs(found["large"][name][0] - read) < 8 << 10, found
        units = 2 * 300 * 1024 if name == "find" else 8 << 10  # the record is found, and got
        assert abs(found["many"][name][0] - found["one"][name][0]) < units, found
        assert max(found["large"][name][1], found["many"][name][1]) < MOST_FAULTS, found


@pytest.mark.parametrize("crashed", [False, True])
def test_a_tail_that_nobody_vouches_for_is_read_once(
    crashed: bool, small: Path, tmp_path: Path
) -> None:
    """It was read three times."""
    path, size = tmp_path / "store", 128 * MIB
    a_store_without_a_note(path, size)
    if crashed:
        (path / "abort").touch()
    found = counted(small, path)
    assert size // 2 < found["own"][0] < size + 32 * MIB
    assert found["own again"][0] < MOST_BYTES


FIND_AGAIN: Final = """
import json, sys, time
import lakelog
from pathlib import Path

def read():
    lines = open("/proc/self/io").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("rchar"))

found = []
with lakelog.open(sys.argv[2], mode="read") as store:
    for _ in range(4):
        before = read()
        assert len(list(store.query("t", "k0"))) == 1
        found.append(read() - before)
        time.sleep(0.005)  # the log is not looked at more often than every 2 ms
print(json.dumps({"queries": found}))
"""


def test_a_reader_reads_the_tail_of_a_store_that_nobody_closed_once(tmp_path: Path) -> None:
    """It was read at every query, as it is not known that nobody wrote."""
    path, size = tmp_path / "store", 64 * MIB
    a_store_without_a_note(path, size)
    deadline = time.monotonic() + 60
    while time.time_ns() - (path / "commitlog" / f"{0:020d}").stat().st_ctime_ns < 3_000_000_000:
        assert time.monotonic() < deadline
        time.sleep(0.1)  # a write that was just now could be followed by one of the same time
    first, *more = counted(path, path, FIND_AGAIN)["queries"]
    assert size // 2 < first < size + 32 * MIB
    assert max(more) < 64 << 10, more


IMPORTS: Final = """
import json, sys
import lakelog
from lakelog import Message

def heavy():
    names = "numpy", "asyncio", "typer", "rich", "pyarrow", "ssl", "importlib.metadata"
    return [name for name in names if name in sys.modules]

mode, steps, found = sys.argv[3], json.loads(sys.argv[4]), {}
with lakelog.open(sys.argv[2], mode=mode, light_queues=mode == "write") as store:
    modules = [name for name in sys.modules if name.startswith("lakelog")]
    for step in steps:
        exec(step)
        found[step] = heavy()
found["close"] = heavy()
print(json.dumps([len(modules), found]))
"""
WRITES: Final = (
    "store.put(Message('t', b'x', keys='k0', tags='a', queue_id=0))",
    "store.put_batch([Message('t', b'x', keys='k1', queue_id=0)] * 32)",
    "assert store.wait_dispatched(timeout_ms=60_000)",
)
READS: Final = (
    "assert store.get('t', 0, 0).messages",
    "assert store.get('t', 0, 0, tags='a').messages",
    "assert list(store.query('t', 'k0'))",
    "assert list(store.read('t', 0))",
    "assert list(store.scan())",
    "store.consumer('g', 't', start='earliest').close()",
)
MOST_MODULES: Final = 125
"""Of lakelog, for the opening of a store."""
needs_native = pytest.mark.skipif(
    "CI" not in os.environ
    and (find_spec("lakelog_native._native") is None or "LAKELOG_ACCELERATOR" in os.environ),
    reason="lakelog-native is missing, or switched off: dispatching in Python needs NumPy",
)


def imports(store: Path, mode: str, *steps: str) -> tuple[int, dict[str, Any]]:
    """How many modules of lakelog an opening imports, and the heavy ones after each step."""
    modules, found = counted(Path(), store, IMPORTS, mode, json.dumps(steps))
    return modules, found


@needs_native
def test_what_most_programs_do_needs_no_numpy_but_columns_do(tmp_path: Path) -> None:
    """Its import takes longer than everything else that the opening of a store does."""
    for mode, steps in (
        ("write", (*WRITES, *READS)),  # a new store; light queues are on, as in a broker
        ("write", (*READS, *WRITES)),  # one that was closed: its last record is dispatched again
        ("exclusive", READS),
        ("read", READS[:-1]),
    ):
        modules, found = imports(tmp_path / "store", mode, *steps)
        assert modules < MOST_MODULES
        assert set(map(tuple, found.values())) == {()}, (mode, found)
    _, found = imports(tmp_path / "store", "write", *WRITES, "store.queue_units('t', 0, 0, 9)")
    assert (found[WRITES[-1]], found["close"]) == ([], ["numpy"])
