"""The cost of opening a closed store, for files of different lengths."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from tests.bench.durable import opening
from tests.bench.model import LAKELOG, Column, Contender, Contest
from tests.bench.peers import java

_SEGMENTS: Final = (1, 64)
_QUICK_SEGMENTS: Final = (1, 3)


class Opening:
    name = "open"
    about = "a closed store of 1 GiB segments opened and closed, in a process that did so before"
    columns: Sequence[Column] = (
        Column("open_ms", "open ms", ",.1f"),
        Column("close_ms", "close ms", ",.1f"),
        Column("read_kib", "KiB read"),
        Column("pages", "pages touched"),
        Column("calls", "system calls"),
    )
    lower_is_better = True

    def contests(self, *, quick: bool) -> Sequence[Contest]:
        return [_contest(segments) for segments in (_QUICK_SEGMENTS if quick else _SEGMENTS)]


def _contest(segments: int) -> Contest:
    return Contest(
        f"{segments} segment{'s' * (segments > 1)}",
        [
            Contender(
                LAKELOG,
                "mode=write, closed by lakelog; KiB and pages of the open, calls of both",
                partial(opening.ours, segments, "own"),
            ),
            Contender(
                "lakelog, unnoted",
                "the same without lakelog/clean-stop.json: the last segment is read once",
                partial(opening.ours, segments, "unnoted"),
            ),
            Contender(
                "lakelog, read",
                "mode=read, then a query by key",
                partial(opening.ours, segments, "read"),
            ),
            Contender(
                java.NAME,
                "DefaultMessageStore 5.3.3: load(), start() and shutdown(); it reads through maps",
                partial(opening.theirs, segments),
            ),
        ],
    )
