"""Rows to be written, and a handover that is killed at any of its calls to the file system."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import lakelog
from lakelog.files.filesystem import File, RealFile, RealFileSystem
from lakelog.format.properties import REPAIRED_TOPIC
from lakelog.message import Message
from lakelog_spark.writing.handover import Handover
from lakelog_spark.writing.staging import StagedPart, folder_of, stage
from plugins.lake.tests.stores import open_small

JOB = "nightly"
SIZES = (25, 0, 13, 30)
"""Rows of each partition."""
_BATCH = 7
_BORN_MS = 1_700_000_000_000
_LONGEST_SECONDS = 60


def rows_of(partition: int, count: int) -> list[Message]:
    """Those of the last partition are all the same."""
    alike = partition == len(SIZES) - 1
    return [
        Message(
            f"topic-{partition}",
            b"the same" if alike else f"{partition}/{number}".encode() * 40,
            properties=b"TAGS\x01t\x02" if number % 2 and not alike else None,
            queue_id=0,
            born_timestamp_ms=_BORN_MS,
        )
        for number in range(count)
    ]


def stage_all(store: Path, job: str = JOB) -> list[StagedPart]:
    """Stage all partitions, in batches of a few rows."""
    parts = []
    for partition, count in enumerate(SIZES):
        rows = rows_of(partition, count)
        batches = [rows[at : at + _BATCH] for at in range(0, count, _BATCH)]
        parts.append(stage(RealFileSystem(), folder_of(store, job), partition, "run", batches))
    return parts


def open_to_append(path: Path, **more: Any) -> lakelog.Store:
    """An owner whose every write goes through the seam."""
    given = {"flush": "inline", "dispatchers": (), "file": {"map_below_bytes": 0}, **more}
    return open_small(path, **given)


def hand_over(path: Path, parts: list[StagedPart] | None, job: str = JOB) -> int:
    with open_to_append(path) as store:
        return Handover(RealFileSystem(), store, job, named=True).run(parts)


def counts(path: Path) -> Counter[tuple[str, bytes]]:
    """How often each message is in the log; what a recovery filled holes with is none."""
    with lakelog.open(path, mode="read", dispatchers=()) as store:
        found = Counter((each.topic, each.body) for each in store.scan())
    return Counter({each: count for each, count in found.items() if each[0] != REPAIRED_TOPIC})


def expected(times: int = 1) -> Counter[tuple[str, bytes]]:
    return Counter(
        (each.topic, bytes(each.body))
        for partition, count in enumerate(SIZES)
        for each in rows_of(partition, count)
        for _ in range(times)
    )


def in_order(path: Path) -> list[bytes]:
    with lakelog.open(path, mode="read", dispatchers=()) as store:
        return [each.body for each in store.scan() if each.topic != REPAIRED_TOPIC]


class _Deadly(RealFile):
    """A file whose writes may be the process's last."""

    def write_at(self, position: int, data: Any) -> None:
        if _Calls.is_last():
            view = memoryview(data).cast("B")
            super().write_at(position, view[: len(view) // 2])
            _die()
        super().write_at(position, data)

    def sync(self) -> None:
        _Calls.count()
        super().sync()


class _Calls:
    """How many are left to this process."""

    left = 0

    @classmethod
    def is_last(cls) -> bool:
        cls.left -= 1
        return cls.left == 0

    @classmethod
    def count(cls) -> None:
        if cls.is_last():
            _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DeadlyFiles(RealFileSystem):
    """Dies at the n-th call that changes something: before it, or in the middle of a write."""

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        file = super().open(path, write=write, create=create)
        return _Deadly(file.path, file)

    def rename(self, source: Path, target: Path) -> None:
        _Calls.count()
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        _Calls.count()
        super().unlink(path)

    def sync_dir(self, path: Path) -> None:
        _Calls.count()
        super().sync_dir(path)


def _program(path: Path, parts: list[StagedPart], number: int) -> None:
    os.environ["LAKELOG_ACCELERATOR"] = "none"  # compiled code appends past these files
    files = DeadlyFiles()
    with open_to_append(path, files=files) as store:
        _Calls.left = number
        Handover(files, store, JOB, named=True).run(parts)
        _Calls.left = 0


def is_killed(path: Path, parts: list[StagedPart], number: int) -> bool:
    """Hand over in a process that dies at its ``number``-th call; whether it did."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "lakelog.log.scan"])
    process = context.Process(target=_program, args=(path, parts, number))
    process.start()
    process.join(_LONGEST_SECONDS)
    code = process.exitcode
    process.close()
    assert code in (0, -signal.SIGKILL), f"the handover ended with {code}"
    return code != 0
