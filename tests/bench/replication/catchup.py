"""Measures the catch-up of a new slave: its rate, and the CPU time of master and slave."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Final

import numpy as np

import lakelog
from lakelog.format.record_batch import RecordBatch
from tests.bench.lake import messages
from tests.bench.model import CannotRunError, Sample
from tests.bench.replication import sides
from tests.bench.replication.sides import SlaveLog
from tests.bench.running import real_store

BODY_BYTES: Final = 1024
_PAUSE_S: Final = 0.002
_WARM_PART: Final = 4
"""One over this part of the log is the warm-up of both, and is not counted."""


def run(master: str, slave: str, rows: int, directory: Path) -> Sample:
    """Measure one pair in an empty folder; the log is created once, in the parent folder."""
    if sides.REAL in (master, slave):
        real_store()
    source = messages.once(directory.parent / f"log-{rows}", lambda path: _fill(path, rows))
    first, warm, last, end = np.load(source / _PLACES).tolist()
    kept = directory.parent / f"master-{master}-{rows}"
    if not kept.exists():
        sides.copy_of(source, kept)
    with ExitStack() as stack:
        if master == sides.REAL:
            sender = stack.enter_context(sides.real_master(kept))
        else:
            sender = stack.enter_context(sides.our_master(kept))
        assert sender.slaves is not None  # a master's
        home = directory / "slave"
        if slave == sides.REAL:
            sides.seed(source, home / "store", first)
            getter = stack.enter_context(sides.real_slave(home, sender.slaves))
        else:
            getter = stack.enter_context(
                sides.our_slave(home, sender.slaves, "--vouch", "received")
            )
        with SlaveLog(getter.store, sides.SEGMENT_BYTES, getter.is_alive) as log:
            begun = log.wait(warm, _PAUSE_S)
            cpu = sender.cpu_seconds(), getter.cpu_seconds()
            seconds = log.wait(last, _PAUSE_S) - begun
            cpu = sender.cpu_seconds() - cpu[0], getter.cpu_seconds() - cpu[1]
        megabytes = (end - warm) / 1e6
        _check(source, getter.store, end)
    return {
        "mb_s": megabytes / seconds,
        "master_mb_cpu_s": megabytes / max(cpu[0], 0.01),
        "slave_mb_cpu_s": megabytes / max(cpu[1], 0.01),
    }


_PLACES: Final = "places.npy"


def _fill(path: Path, rows: int) -> None:
    messages.fill(path, rows, segment_size_bytes=sides.SEGMENT_BYTES)
    with lakelog.open(path, mode="read") as store:
        starts = np.concatenate(
            [
                each.physical_offsets
                for each in store.scan_pieces(verify=False)
                if isinstance(each, RecordBatch)
            ]
        )
        places = [starts[1], starts[len(starts) // _WARM_PART], starts[-1], store.max_offset]
    np.save(path / _PLACES, places)


def _check(source: Path, copy: Path, end: int) -> None:
    """Compare the first and the last MiB of each segment."""
    for start in range(0, end, sides.SEGMENT_BYTES):
        length = min(sides.SEGMENT_BYTES, end - start)
        name = f"commitlog/{start:020d}"
        with (source / name).open("rb") as one, (copy / name).open("rb") as other:
            for at in (0, max(0, length - (1 << 21))):
                one.seek(at)
                other.seek(at)
                size = min(1 << 20, length - at)
                if one.read(size) != other.read(size):
                    raise CannotRunError(f"the copy of segment {start} has other bytes")
