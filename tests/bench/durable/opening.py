"""Openings: empty stores, closed ones, filled ones after a kill or a close; and their check.

``python -m`` runs one step in a process of its own. The suite `open` counts bytes, pages and system
calls, as the kernel does, in a process that has opened another store before. The suites `recovery`
and `verify` use copies of one filled store, which are in the page cache and synced.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import lakelog
from lakelog import Message, MessageColumns
from lakelog.format.layout import (
    AT_PHYSICAL_OFFSET,
    AT_QUEUE_OFFSET,
    BLANK,
    MAGIC_BLANK,
    segment_name,
)
from lakelog.recovery.clean_stop import CLEAN_STOP_FILE
from tests.bench.content import QUEUES, TAGS, TOPIC, body, key
from tests.bench.durable.work import BODY_BYTES
from tests.bench.model import (
    LAKELOG,
    ROCKETMQ,
    CannotRunError,
    Column,
    Contender,
    Contest,
    Sample,
    Suite,
    counted,
)
from tests.bench.running import output, python, real_store, sample

GIB_VARIABLE: Final = "BENCH_GIB"
SEGMENT_BYTES: Final = 1 << 30
_KEY: Final = "k0"
_BEGIN: Final = "/begin-of-what-is-counted"
_END: Final = "/end-of-what-is-counted"
_BATCH: Final = 4096
_PIECE_BYTES: Final = 8 << 20


def since(begin: float) -> float:
    """Return the ms since a time of ``time.perf_counter``."""
    return (time.perf_counter() - begin) * 1e3


# --- empty stores ------------------------------------------------------------------------------

_STARTS: Final = {
    LAKELOG: ("lakelog", "lakelog.open(path)"),
    "lmdb": ("lmdb", "lmdb.open(path)"),
    "rocksdb": ("rocksdict", "rocksdict.Rdict(path)"),
    "sqlite": ("sqlite3", "sqlite3.connect(path + '/db'); store.execute('CREATE TABLE t (a)')"),
}
_SCRIPT: Final = """
import json, os, sys, time
os.chdir("/")  # a pyproject.toml above the working directory would be read
path, had = sys.argv[1], set(sys.modules)
times = [time.perf_counter()]
import {module}
times.append(time.perf_counter())
store = {opening}
times.append(time.perf_counter())
kib = 0
for line in open("/proc/self/smaps"):
    words = line.split()
    if "-" in words[0] and not words[0].endswith(":"):
        counts = path not in line
    elif words[0] == "Rss:" and counts:
        kib += int(words[1])
modules = len(set(sys.modules) - had)
times.append(time.perf_counter())
store.close()
times.append(time.perf_counter())
path += "/again"
os.mkdir(path)
times.append(time.perf_counter())
store = {opening}
times.append(time.perf_counter())
ms = [(end - begin) * 1e3 for begin, end in zip(times, times[1:])]
print(json.dumps({{
    "ms": ms[0] + ms[1] + ms[3], "import_ms": ms[0], "open_ms": ms[1], "close_ms": ms[3],
    "again_ms": ms[5], "modules": modules, "rss_mib": kib / 1024,
}}))
"""


def started(module: str, opening: str, processes: int, directory: Path) -> Sample:
    """Return the medians of some new interpreters; one before them writes missing byte code."""
    samples = []
    for number in range(processes + 1):
        folder = directory / str(number)
        folder.mkdir()
        script = _SCRIPT.format(module=module, opening=opening)
        samples.append(sample([sys.executable, "-c", script, str(folder)]))
    return {name: statistics.median(each[name] for each in samples[1:]) for name in samples[0]}


def _start(quick: bool) -> Sequence[Contest]:
    processes = 3 if quick else 7
    contenders = [
        Contender(name, f"{opening}, defaults", partial(started, module, opening, processes))
        for name, (module, opening) in _STARTS.items()
    ]
    return [Contest("empty store", contenders)]


# --- closed stores -----------------------------------------------------------------------------


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


def counted_opening(segments: int, way: str | None, directory: Path) -> Sample:
    """Measure bytes and pages in one process, and system calls in another.

    :param way: of :data:`_WAYS`; ``None`` lets the real store load, start and shut down
    """
    oracle = real_store() if way is None else None
    store, warm = a_store(directory, segments), a_store(directory / "warm", 1)
    if oracle is None:
        command = python(__name__, "count", way, warm, store)
    else:
        arguments = ["--mode", "reopen", "--warm", str(warm), "--begin", _BEGIN, "--end", _END]
        command = oracle.command("Bench", store, arguments)
    # The file system then reports the last segment's unwritten extents as data.
    last = max((store / "commitlog").iterdir())
    subprocess.run(["cat", last], stdout=subprocess.DEVNULL, check=True)
    found = dict(sample(command))
    found.pop("bench", None)
    if shutil.which("strace"):
        traced = output(["strace", "-f", "-o", "/dev/stderr", *command], errors=True)
        calls = [line for line in traced.splitlines() if "execve(" not in line]  # it has the names
        between = "\n".join(calls).partition(_BEGIN)[2].partition(_END)[0].splitlines()
        found["calls"] = sum("resumed>" not in line for line in between)
    return found


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
    open_ms = since(begin)
    opened = _reads()
    close()
    close_ms = since(begin) - open_ms
    Path(_END).exists()
    read_kib, pages = (after - before for after, before in zip(opened, first, strict=True))
    row = {"open_ms": open_ms, "close_ms": close_ms, "read_kib": read_kib, "pages": pages}
    print(json.dumps(row))


def _reads() -> tuple[float, int]:
    """Return the KiB read by system calls, and the number of minor page faults."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    read = next(int(line.split()[1]) for line in lines if line.startswith("rchar"))
    return read / 1024, resource.getrusage(resource.RUSAGE_SELF).ru_minflt


_OPENED: Final[Sequence[tuple[str, str, str | None]]] = (
    (LAKELOG, "mode=write, closed by lakelog; KiB and pages of the open, calls of both", "own"),
    (
        "lakelog, unnoted",
        "the same without lakelog/clean-stop.json: the last segment is read once",
        "unnoted",
    ),
    ("lakelog, read", "mode=read, then a query by key", "read"),
    (
        ROCKETMQ,
        "DefaultMessageStore 5.3.3: load(), start() and shutdown(); it reads through maps",
        None,
    ),
)


def _open(quick: bool) -> Sequence[Contest]:
    return [
        Contest(
            counted(segments, "segment"),
            [
                Contender(name, note, partial(counted_opening, segments, way))
                for name, note, way in _OPENED
            ],
        )
        for segments in ((1, 3) if quick else (1, 64))
    ]


# --- filled stores -----------------------------------------------------------------------------


def filled_bytes(quick: bool) -> int:
    """Return the size of the stores: 4 GiB, or the value of BENCH_GIB."""
    given = os.environ.get(GIB_VARIABLE, "0.25" if quick else "4")
    return int(float(given) * (1 << 30))


def copy_of(size: int, killed: bool, directory: Path) -> Path:
    """Copy a store of ``size`` bytes into the directory; the first call fills the store."""
    source = directory.parent / f"source-{size}-{'killed' if killed else 'closed'}"
    if not source.exists():
        unfinished = source.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        command = python(__name__, "fill", unfinished, size, "kill" if killed else "close")
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != (-signal.SIGKILL if killed else 0):
            raise CannotRunError(f"no store: {done.stderr[-200:]}")
        unfinished.rename(source)
    store = directory / "store"
    subprocess.run(["cp", "-a", "--sparse=always", source, store], check=True)
    os.sync()  # otherwise the first sync of a contender would write the copy
    return store


def fill(store: str, size: str, ending: str) -> None:
    """Put until the log has ``size`` bytes; then close the store, or end without a close."""
    content, number = [body(BODY_BYTES)] * _BATCH, 0
    with lakelog.open(store, flush="timed") as opened:
        while opened.max_offset < int(size):
            keys = [key(number + at) for at in range(_BATCH)]
            opened.put_batch(MessageColumns(TOPIC, content, number // _BATCH % QUEUES, TAGS, keys))
            number += _BATCH
        if ending == "kill":
            os.kill(os.getpid(), signal.SIGKILL)


def ours(size: int, killed: bool, directory: Path) -> Sample:
    """Measure an open in a new process.

    The note of a clean stop identifies files by inodes, so it is invalid in a copy. Therefore the
    copy of a closed store is opened and closed once before.
    """
    command = python(__name__, "start", copy_of(size, killed, directory))
    if not killed:
        sample(command)
    begin = time.perf_counter()
    return {**sample(command), "process_ms": since(begin)}


def start(store: str) -> None:
    """Measure `lakelog.open`, without the import."""
    begin = time.perf_counter()
    with lakelog.open(store) as opened:
        open_ms = since(begin)
        opened.put(Message(TOPIC, b"usable", queue_id=0))
        usable_ms = since(begin)
        if not opened.wait_dispatched(timeout_ms=600_000):
            raise SystemExit("queues and index were not completed")
        dispatched_ms = since(begin)
    print(json.dumps({"ms": usable_ms, "open_ms": open_ms, "dispatched_ms": dispatched_ms}))


def theirs(size: int, killed: bool, directory: Path) -> Sample:
    """Let the real store load and start on such a copy in a new JVM."""
    oracle, store = real_store(), copy_of(size, killed, directory)
    begin = time.perf_counter()
    row = oracle.bench(store, "load")
    names = {"ms": "start_ms", "open_ms": "load_ms", "dispatched_ms": "dispatched_ms"}
    return {name: row[of] for name, of in names.items()} | {"process_ms": since(begin)}


def verified(size: int, options: Sequence[str], directory: Path) -> Sample:
    """Measure `lakelog verify` of a closed store."""
    store = copy_of(size, False, directory)
    begin = time.perf_counter()
    output([str(Path(sys.executable).with_name("lakelog")), "verify", str(store), *options])
    return _rate(size, begin)


def read_and_summed(size: int, directory: Path) -> Sample:
    """Read every segment and compute its CRC, in this process: the lower bound for one core."""
    store = copy_of(size, False, directory)
    left, begin = size, time.perf_counter()
    for segment in sorted((store / "commitlog").iterdir()):
        with segment.open("rb") as file:
            while left > 0 and (piece := file.read(min(_PIECE_BYTES, left))):
                zlib.crc32(piece)
                left -= len(piece)
    return _rate(size, begin)


def _rate(size: int, begin: float) -> Sample:
    seconds = since(begin) / 1e3
    return {"gb_s": size / seconds / 1e9, "seconds": seconds}


def _recovery(quick: bool) -> Sequence[Contest]:
    size = filled_bytes(quick)
    note = "lakelog.open, then a put; written by lakelog with flush=timed"
    real = "DefaultMessageStore 5.3.3: load() is recovery, usable is behind start()"
    return [
        Contest(
            f"{size / (1 << 30):g} GiB, {'killed' if killed else 'closed'}",
            [
                Contender(LAKELOG, note, partial(ours, size, killed)),
                Contender(ROCKETMQ, real, partial(theirs, size, killed)),
            ],
        )
        for killed in (True, False)
    ]


def _verify(quick: bool) -> Sequence[Contest]:
    size = filled_bytes(quick)
    ways: dict[str, tuple[str, Callable[[Path], Sample]]] = {
        LAKELOG: ("lakelog verify", partial(verified, size, [])),
        "everything": ("with --all: queues and index too", partial(verified, size, ["--all"])),
        "read and crc32": ("one process, 8 MiB at a time", partial(read_and_summed, size)),
    }
    contenders = [Contender(name, note, run) for name, (note, run) in ways.items()]
    return [Contest(f"{size / (1 << 30):g} GiB", contenders)]


OPENINGS: Final = (
    Suite(
        "start",
        "a new store in a fresh interpreter; memory is counted while it is open, without its maps",
        (
            Column("ms", "import, open, close ms", ",.1f"),
            Column("import_ms", "import ms", ",.1f"),
            Column("open_ms", "open ms", ",.1f"),
            Column("close_ms", "close ms", ",.1f"),
            Column("again_ms", "open another ms", ",.1f"),
            Column("modules", "modules loaded"),
            Column("rss_mib", "RSS MiB", ",.1f"),
        ),
        _start,
        lower_is_better=True,
    ),
    Suite(
        "open",
        "a closed store of 1 GiB segments opened and closed, in a process that did so before",
        (
            Column("open_ms", "open ms", ",.1f"),
            Column("close_ms", "close ms", ",.1f"),
            Column("read_kib", "KiB read"),
            Column("pages", "pages touched"),
            Column("calls", "system calls"),
        ),
        _open,
        lower_is_better=True,
    ),
    Suite(
        "recovery",
        "a store of 1 KiB messages opened until it takes a put; the aim is half of Java's time",
        (
            Column("ms", "usable ms"),
            Column("open_ms", "open/load ms"),
            Column("dispatched_ms", "dispatched ms"),
            Column("process_ms", "process ms"),
        ),
        _recovery,
        lower_is_better=True,
    ),
    Suite(
        "verify",
        "a closed store of 1 KiB messages checked; the interpreter's start is counted",
        (Column("gb_s", "GB/s", ",.2f"), Column("seconds", "s", ",.2f")),
        _verify,
    ),
)
_STEPS: Final[dict[str, Callable[..., None]]] = {"count": count, "fill": fill, "start": start}

if __name__ == "__main__":
    _STEPS[sys.argv[1]](*sys.argv[2:])
