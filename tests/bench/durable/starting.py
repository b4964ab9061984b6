"""Measures starts: stores are filled, stopped in two ways, then opened or read."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Final

import lakelog
from lakelog import MessageColumns
from tests.bench.content import QUEUES, TAGS, TOPIC, body, key
from tests.bench.durable.work import BODY_BYTES
from tests.bench.model import CannotRunError, Sample
from tests.oracle.java import build_oracle, missing

_BATCH: Final = 4096
_KILLED: Final = -signal.SIGKILL
_PIECE_BYTES: Final = 8 << 20


def copy_of(filled_bytes: int, killed: bool, directory: Path) -> Path:
    """Copy a store of ``filled_bytes`` into the directory; the first call fills the store.

    The copy's pages are in the page cache, the same for all contenders, and synced: otherwise the
    first sync of a contender would write the copy.
    """
    source = directory.parent / f"source-{filled_bytes}-{'killed' if killed else 'closed'}"
    if not source.exists():
        unfinished = source.with_suffix(".unfinished")
        _fill(unfinished, filled_bytes, killed)
        unfinished.rename(source)
    store = directory / "store"
    subprocess.run(["cp", "-a", "--sparse=always", source, store], check=True)
    os.sync()
    return store


def _fill(store: Path, filled_bytes: int, killed: bool) -> None:
    arguments = [str(store), str(filled_bytes), "kill" if killed else "close"]
    done = _python("fill", *arguments)
    if done.returncode != (_KILLED if killed else 0):
        shutil.rmtree(store, ignore_errors=True)
        raise CannotRunError(_last_line(done))


def fill(store: str, filled_bytes: str, ending: str) -> None:
    """Put until the log has ``filled_bytes``; then close the store, or end without a close."""
    content, number = [body(BODY_BYTES)] * _BATCH, 0
    with lakelog.open(store, flush="timed") as opened:
        while opened.max_offset < int(filled_bytes):
            keys = [key(number + at) for at in range(_BATCH)]
            opened.put_batch(MessageColumns(TOPIC, content, number // _BATCH % QUEUES, TAGS, keys))
            number += _BATCH
        if ending == "kill":
            os.kill(os.getpid(), signal.SIGKILL)


def ours(filled_bytes: int, killed: bool, directory: Path) -> Sample:
    """Measure an open in a new process.

    The note of a clean stop identifies files by inodes, so it is invalid in a copy. Therefore the
    copy of a closed store is opened and closed once before.
    """
    store = copy_of(filled_bytes, killed, directory)
    if not killed:
        _timed("start", str(store))
    return _timed("start", str(store))


def start(store: str) -> None:
    """Measure `lakelog.open`, without the import."""
    begin = time.perf_counter()
    with lakelog.open(store) as opened:
        open_ms = _since(begin)
        opened.put(lakelog.Message(TOPIC, b"usable", queue_id=0))
        usable_ms = _since(begin)
        if not opened.wait_dispatched(timeout_ms=600_000):
            raise SystemExit("queues and index were not completed")
        dispatched_ms = _since(begin)
    print(json.dumps({"ms": usable_ms, "open_ms": open_ms, "dispatched_ms": dispatched_ms}))


def theirs(filled_bytes: int, killed: bool, directory: Path) -> Sample:
    """Let the real store load and start on such a copy in a new JVM."""
    reason = missing()
    if reason:
        raise CannotRunError(reason)
    oracle = build_oracle()
    store = copy_of(filled_bytes, killed, directory)
    begin = time.perf_counter()
    row = oracle.bench(store, "load")
    return {
        "ms": row["start_ms"],
        "open_ms": row["load_ms"],
        "dispatched_ms": row["dispatched_ms"],
        "process_ms": _since(begin),
    }


def verified(filled_bytes: int, everything: bool, directory: Path) -> Sample:
    """Measure `lakelog verify` of a closed store."""
    store = copy_of(filled_bytes, False, directory)
    arguments = ["verify", str(store), *(["--all"] if everything else [])]
    begin = time.perf_counter()
    done = subprocess.run(
        [str(Path(sys.executable).with_name("lakelog")), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - begin
    if done.returncode != 0:
        raise CannotRunError(_last_line(done))
    return {"gb_s": filled_bytes / seconds / 1e9, "seconds": seconds}


def read_and_summed(filled_bytes: int, directory: Path) -> Sample:
    """Read every segment and compute its CRC, in this process: the lower bound for one core."""
    store = copy_of(filled_bytes, False, directory)
    left, begin = filled_bytes, time.perf_counter()
    for segment in sorted((store / "commitlog").iterdir()):
        with segment.open("rb") as file:
            while left > 0 and (piece := file.read(min(_PIECE_BYTES, left))):
                zlib.crc32(piece)
                left -= len(piece)
    seconds = time.perf_counter() - begin
    return {"gb_s": filled_bytes / seconds / 1e9, "seconds": seconds}


def _timed(mode: str, *arguments: str) -> Sample:
    begin = time.perf_counter()
    done = _python(mode, *arguments)
    if done.returncode != 0:
        raise CannotRunError(_last_line(done))
    sample: dict[str, float] = json.loads(done.stdout)
    return {**sample, "process_ms": _since(begin)}


def _python(mode: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", __name__, mode, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr.strip() or f"died: {done.returncode}").splitlines()[-1]


def _since(begin: float) -> float:
    return (time.perf_counter() - begin) * 1e3


if __name__ == "__main__":
    if sys.argv[1] == "fill":
        fill(*sys.argv[2:])
    else:
        start(*sys.argv[2:])
