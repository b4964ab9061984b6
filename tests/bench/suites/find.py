"""Finding messages: builds queues and index, reads queues, looks up keys and times.

Each contender first writes its messages, in a separate process, and then does the same work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from tests.bench import finding
from tests.bench.model import LAKELOG, CannotRunError, Column, Contender, Contest, Sample
from tests.bench.peers import java
from tests.oracle.java import build_oracle, missing

_BODY_BYTES: Final = 128
_LARGE_BODY_BYTES: Final = 1024
_MESSAGES: Final = 2_000_000
_QUICK: Final = 20
_ROWS: Final = (Column("rows_s", "messages/s"),)
_CALLS: Final = (
    Column("rows_s", "calls/s"),
    Column("p50_us", "p50 us", ",.1f"),
    Column("p99_us", "p99 us", ",.1f"),
)


@dataclass
class Find:
    """One kind of work.

    :ivar ours: lakelog's kinds of work, by the name of the contender
    :ivar theirs: the mode of the real store's benchmark
    :ivar bodies: sizes of the bodies, in bytes, with one contest each
    """

    name: str
    about: str
    columns: Sequence[Column]
    ours: Sequence[str]
    theirs: str
    share: int = 1
    lower_is_better: bool = False
    bodies: Sequence[int] = (_BODY_BYTES,)

    def contests(self, *, quick: bool) -> Sequence[Contest]:
        """Return one contest for each size of messages."""
        count = _MESSAGES // self.share // (_QUICK if quick else 1)
        return [self._contest(count, body_bytes) for body_bytes in self.bodies]

    def _contest(self, count: int, body_bytes: int) -> Contest:
        ours = [
            Contender(
                LAKELOG if not at else work,
                finding.WORK[work].about,
                partial(finding.spawn, work, count, body_bytes),
            )
            for at, work in enumerate(self.ours)
        ]
        theirs = Contender(java.NAME, java.SETTINGS, partial(_java, self.theirs, count, body_bytes))
        return Contest(f"{count:,} messages of {body_bytes:,} B", [*ours, theirs])


def _java(mode: str, count: int, body_bytes: int, directory: Path) -> Sample:
    reason = missing()
    if reason:
        raise CannotRunError(reason)
    row = build_oracle().bench(directory, mode, body=body_bytes, count=count)
    return {"rows_s": row["msgs_s"], "p50_us": row["p50_us"], "p99_us": row["p99_us"]}


FIND: Final = (
    Find(
        "dispatch",
        "queues and index (one key each) built from records that wait in the log",
        _ROWS,
        ("dispatch",),
        "reput",
    ),
    Find(
        "read",
        "all messages of four queues, read 32 at a time and decoded; columns 4,096 at a time",
        _ROWS,
        ("get", "get_columns", "unchecked", "all_columns"),
        "read",
        share=4,
        bodies=(_BODY_BYTES, _LARGE_BODY_BYTES),
    ),
    Find(
        "query",
        "messages looked up by key, in an index of the default size",
        _CALLS,
        ("query",),
        "query",
        share=20,
    ),
    Find("bytime", "offset by store time", _CALLS, ("bytime",), "bytime", share=20),
    Find(
        "latency",
        "from a put until the message can be read, one at a time",
        _CALLS,
        ("latency",),
        "latency",
        share=200,
    ),
)
