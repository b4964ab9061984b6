"""Appends, one by one and in batches, for every store. Each constructs its messages in the loop."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.bench import child, peers
from tests.bench.load import Load, count_for, size_text
from tests.bench.model import CannotRunError, Column, Contender, Contest, Sample
from tests.bench.peers import java

_BODIES = (128, 1024, 4096)
_THREADS = (1, 4)
_BATCHES = (32, 1024)


class Put:
    name = "put"
    about = "messages put one by one, nothing waits for the disk"
    columns: Sequence[Column] = (Column("rows_s", "messages/s"), Column("mb_s", "MB/s", ",.1f"))
    lower_is_better = False

    def contests(self, *, quick: bool) -> Sequence[Contest]:
        return [
            _contest(
                f"{threads} thread{'s' * (threads > 1)}, {size_text(body)}",
                Load(body, count_for(body, quick=quick), threads=threads),
            )
            for threads in _THREADS
            for body in _BODIES
        ]


class PutBatch:
    name = "put_batch"
    about = "messages put in batches by one thread, nothing waits for the disk"
    columns = Put.columns
    lower_is_better = False

    def contests(self, *, quick: bool) -> Sequence[Contest]:
        return [
            _contest(
                f"batches of {size}, {size_text(body)}",
                Load(body, count_for(body, quick=quick), batch_size=size),
                peers.BATCH_NAMES,
            )
            for size in _BATCHES
            for body in _BODIES
        ]


def _contest(title: str, load: Load, names: Sequence[str] = peers.NAMES) -> Contest:
    in_process = [Contender(name, _note(name), partial(_run, name, load)) for name in names]
    real_store = Contender(java.NAME, java.SETTINGS, partial(java.run, load))
    return Contest(title, [*in_process, real_store])


def _note(name: str) -> str:
    try:
        return str(peers.module(name).SETTINGS)
    except CannotRunError as reason:
        return str(reason)


def _run(name: str, load: Load, directory: Path) -> Sample:
    peers.module(name)
    return child.spawn(name, load, directory)
