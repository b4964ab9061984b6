"""From a put to a row in a table, while messages trickle in at a steady rate.

`python -m tests.bench.lake.visible delta` puts 1,000 messages of 1 KiB a second under group-commit,
ten at a time, beside `lakelog dispatch`, and prints how long it took until they could be read. What
is looked at is cheap: the catalog's pointer, or the newest name in Delta's log.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import lakelog
from lakelog_lake.landing.targets import identity_of
from lakelog_lake.sinks.iceberg import CATALOG_FILE
from plugins.lake.tests.landing.passes import sink_for
from tests.bench import running
from tests.bench.lake.messages import bodies, columns

_AT_ONCE: Final = 10
_POLL_SECONDS: Final = 0.005


def _put(store: lakelog.Store, rate: int, end: float, put: list[tuple[float, int]]) -> None:
    """Put ``rate`` messages per second until ``end``; collects durable times and end offsets."""
    number, begun = 0, time.monotonic()
    while time.monotonic() < end:
        at = time.monotonic()
        store.put_batch(columns(range(number, number + _AT_ONCE)))
        put.append((at, store.max_offset))
        number += _AT_ONCE
        time.sleep(max(0.0, begun + number / rate - time.monotonic()))


def _pointer(kind: str, table: Path) -> Callable[[], object]:
    """Return a function that reads a value that changes with each version of the table."""
    if kind == "delta":
        log = table / "_delta_log"
        return lambda: max(each for each in os.listdir(log) if each[:20].isdigit())[:20]
    base = sqlite3.connect(table / CATALOG_FILE, timeout=10)
    return lambda: base.execute("select metadata_location from iceberg_tables").fetchone()


def measured(kind: str, folder: Path, options: argparse.Namespace) -> list[float]:
    """Return the seconds from each put until its rows are visible."""
    bodies()
    table, to = folder / "table", f"{kind}:{folder / 'table'}"
    sink = sink_for(to)
    sink.prepare()
    put: list[tuple[float, int]] = []
    seen: list[tuple[float, int]] = []
    with lakelog.open(folder / "store", flush="group-commit") as store:
        store.put_batch(columns(range(1)))
        identity = identity_of(folder / "store", None)
        command = running.python("lakelog", "dispatch", folder / "store", "--to", to)
        command += ["--interval-ms", "300"]
        process = subprocess.Popen([*command, "--engine", options.engine, *options.more])
        try:
            while sink.head(identity).position is None:
                time.sleep(0.1)
            end = time.monotonic() + options.seconds
            putter = threading.Thread(target=_put, args=(store, options.rate, end, put))
            putter.start()
            pointer, before = _pointer(kind, table), None
            while not put or putter.is_alive() or not seen or seen[-1][1] < put[-1][1]:
                time.sleep(_POLL_SECONDS)
                if (now := pointer()) != before:
                    before, at = now, time.monotonic()
                    position = sink.head(identity).position
                    assert position is not None
                    seen.append((at, position.end))
        finally:
            process.terminate()
            process.wait()
    found, looks = [], iter(seen)
    look = next(looks)
    for at, end_of in put:
        while look[1] < end_of:
            look = next(looks)
        found.append(look[0] - at)
    return found[len(found) // 5 :]  # the first fifth warms up


def main() -> None:
    """Print the median and the 95th percentile."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("iceberg", "delta"))
    parser.add_argument("--engine", default="processes")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--dir", type=Path)
    options, more = parser.parse_known_args()
    options.more = more
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        found = sorted(measured(options.kind, Path(folder), options))
    median, late = statistics.median(found), found[len(found) * 95 // 100]
    print(f"{options.kind} by {options.engine}: median {median:.3f} s, p95 {late:.3f} s")


if __name__ == "__main__":
    main()
