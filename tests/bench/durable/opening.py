"""Measures the open of a closed store: bytes, pages and system calls, as the kernel counts them.

Each open is in a process that has opened another store before, so that imports and class loading
are not counted. strace counts system calls, in a separate process.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import lakelog
from lakelog import Message
from lakelog.files.state.clean_stop import CLEAN_STOP_FILE
from lakelog.format.layout import (
    AT_PHYSICAL_OFFSET,
    AT_QUEUE_OFFSET,
    BLANK,
    MAGIC_BLANK,
    segment_name,
)
from tests.bench.content import TOPIC
from tests.bench.model import CannotRunError, Sample
from tests.oracle.java import build_oracle, missing

SEGMENT_BYTES: Final = 1 << 30
_KEY: Final = "k0"
_BEGIN: Final = "/begin-of-what-is-counted"
_END: Final = "/end-of-what-is-counted"


def a_store(directory: Path, segments: int) -> Path:
    """Create a closed store of default settings; all segments but the last one are full.

    A full segment has a record of 1 KiB and a blank over the rest, which is a hole in the file.
    An open reads the same as for any other store, but the disk need not hold 64 GiB.
    """
    store = directory / f"store-{segments}"
    with lakelog.open(store, segment_size_bytes=SEGMENT_BYTES) as opened:
        put = opened.put(Message(TOPIC, os.urandom(1024), queue_id=0, keys=_KEY))
    if segments > 1:
        _lengthen(store, put.end_offset, segments)
        lakelog.recover(store, full=True)
    return store


def _lengthen(store: Path, size: int, segments: int) -> None:
    """Write the record of ``size`` bytes into each segment, with its physical offset there."""
    log = store / "commitlog"
    record = bytearray((log / segment_name(0)).read_bytes()[:size])
    for number in range(segments):
        start = number * SEGMENT_BYTES
        record[AT_QUEUE_OFFSET : AT_QUEUE_OFFSET + 8] = number.to_bytes(8, "big")
        record[AT_PHYSICAL_OFFSET : AT_PHYSICAL_OFFSET + 8] = start.to_bytes(8, "big")
        blank = BLANK.pack(SEGMENT_BYTES - size, MAGIC_BLANK) if number + 1 < segments else b""
        with (log / segment_name(start)).open("wb") as file:
            file.write(record + blank)
            file.truncate(SEGMENT_BYTES)


def ours(segments: int, way: str, directory: Path) -> Sample:
    """Measure bytes and pages in one process, and system calls in another.

    :param way: ``own``; ``unnoted``, without the note of a clean stop; ``read``, with a query
    """
    store, warm = a_store(directory, segments), a_store(directory / "warm", 1)
    command = [sys.executable, "-m", __name__, way, str(warm), str(store)]
    _into_the_page_cache(store)
    return _counted(command)


def theirs(segments: int, directory: Path) -> Sample:
    """Let the real store load and start on such a store, and shut down."""
    reason = missing()
    if reason:
        raise CannotRunError(reason)
    oracle = build_oracle()
    store, warm = a_store(directory, segments), a_store(directory / "warm", 1)
    _into_the_page_cache(store)
    arguments = ["--mode", "reopen", "--warm", str(warm), "--begin", _BEGIN, "--end", _END]
    return _counted(oracle.command("Bench", store, arguments))


def _into_the_page_cache(store: Path) -> None:
    """Read the last segment; the file system then reports its unwritten extents as data."""
    last = max((store / "commitlog").iterdir())
    subprocess.run(["cat", last], stdout=subprocess.DEVNULL, check=True)


def _counted(command: Sequence[str]) -> Sample:
    sample: dict[str, float] = json.loads(_run(command).splitlines()[-1])
    sample.pop("bench", None)
    if shutil.which("strace"):
        lines = _run(["strace", "-f", "-o", "/dev/stderr", *command], errors=True).splitlines()
        calls = "\n".join(line for line in lines if "execve(" not in line)  # also has the names
        between = calls.partition(_BEGIN)[2].partition(_END)[0].splitlines()
        sample["calls"] = sum("resumed>" not in line for line in between)
    return sample


def _run(command: Sequence[str], *, errors: bool = False) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotRunError((done.stderr.strip() or f"died: {done.returncode}").splitlines()[-1])
    return done.stderr if errors else done.stdout


def _own(store: Path) -> Callable[[], None]:
    return lakelog.open(store).close


def _unnoted(store: Path) -> Callable[[], None]:
    (store / "lakelog" / CLEAN_STOP_FILE).unlink()
    return _own(store)


def _read(store: Path) -> Callable[[], None]:
    opened = lakelog.open(store, mode="read")
    if len(list(opened.query(TOPIC, _KEY, max_messages=1))) != 1:
        raise SystemExit("the message was not found")
    return opened.close


_WAYS: Final = {"own": _own, "unnoted": _unnoted, "read": _read}


def count(way: str, warm: str, store: str) -> None:
    """Open and close one store, then measure the open of the other one."""
    _WAYS[way](Path(warm))()
    Path(_BEGIN).exists()
    first, begin = _reads(), time.perf_counter()
    close = _WAYS[way](Path(store))
    open_ms = (time.perf_counter() - begin) * 1e3
    opened = _reads()
    close()
    close_ms = (time.perf_counter() - begin) * 1e3 - open_ms
    Path(_END).exists()
    read_kib, pages = (after - before for after, before in zip(opened, first, strict=True))
    row = {"open_ms": open_ms, "close_ms": close_ms, "read_kib": read_kib, "pages": pages}
    print(json.dumps(row))


def _reads() -> tuple[float, int]:
    """Return the KiB read by system calls, and the number of minor page faults."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    read = next(int(line.split()[1]) for line in lines if line.startswith("rchar"))
    return read / 1024, resource.getrusage(resource.RUSAGE_SELF).ru_minflt


if __name__ == "__main__":
    count(*sys.argv[1:])
