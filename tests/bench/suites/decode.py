"""Decoding a run of records into columns, beside copying the same bytes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tests.bench.content import body, run_of_records
from tests.bench.load import size_text
from tests.bench.model import LAKELOG, CannotRunError, Column, Contender, Contest, Sample

_BODIES = (128, 1024, 4096)
_RUN_BYTES = 32 << 20
_QUICK_RUN_BYTES = 4 << 20
_PASSES = 5
_COLUMNS = ("queue_ids", "queue_offsets", "physical_offsets", "sys_flags", "store_timestamps_ms")


class Decode:
    name = "decode"
    about = "a run of records in memory, found and checked; their fixed fields as columns"
    columns: Sequence[Column] = (Column("rows_s", "records/s"), Column("gb_s", "GB/s", ",.2f"))
    lower_is_better = False

    def contests(self, *, quick: bool) -> Sequence[Contest]:
        run_bytes = _QUICK_RUN_BYTES if quick else _RUN_BYTES
        return [_contest(size, run_bytes // size) for size in _BODIES]


def _contest(body_bytes: int, count: int) -> Contest:
    checked, unchecked = (partial(_decode, verify, body_bytes, count) for verify in (True, False))
    return Contest(
        size_text(body_bytes),
        [
            Contender(LAKELOG, "decode_run with all checksums, and five columns read", checked),
            Contender("unverified", "decode_run(verify=False), and five columns read", unchecked),
            Contender("memcpy", "the bytes alone, copied", partial(_copy, body_bytes, count)),
        ],
    )


def _decode(verify: bool, body_bytes: int, count: int, _directory: Path) -> Sample:
    try:
        from lakelog.codec import decode_run
    except ImportError as missing:
        raise CannotRunError(str(missing)) from missing
    records = run_of_records(count, body(body_bytes))

    def decode() -> None:
        batch = decode_run(records, 0, verify=verify, max_records=count)
        if len(batch) != count:
            raise CannotRunError(f"{len(batch)} of {count} records decoded")
        for column in _COLUMNS:
            getattr(batch, column)

    return _figures(count, len(records), decode)


def _copy(body_bytes: int, count: int, _directory: Path) -> Sample:
    records = run_of_records(count, body(body_bytes))
    target = memoryview(bytearray(len(records)))

    def copy() -> None:
        target[:] = records

    return _figures(count, len(records), copy)


def _figures(count: int, size_bytes: int, work: Callable[[], object]) -> Sample:
    """Return the best of some passes, because disturbances only make a pass slower."""
    seconds = min(_timed(work) for _ in range(_PASSES))
    return {"rows_s": count / seconds, "gb_s": size_bytes / seconds / 1e9}


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
