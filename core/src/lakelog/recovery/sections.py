"""How far a part of a segment is sound from its start on, found without looking at any other one.

Sound is: whole records, one behind the other, none older than the one before it. That needs no
proof, so parts can be looked at by several processes. One that does not begin where a segment does
may begin within a record: what is sound then begins behind it, and whoever joins the parts asks
whether the part before ends right there. As a program, it answers for the parts that its first line
of input names, each with a line of JSON as soon as it is known.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import attrs

from lakelog.codec.recordbatch import RecordBatch
from lakelog.files.filesystem import RealFileSystem
from lakelog.log.queue_survey import QueueOffsetChain, QueueOffsetSurvey
from lakelog.log.reading.pieces import Blank
from lakelog.log.reading.scan import scan
from lakelog.log.reading.source import FileSource


@attrs.frozen
class Section:
    """The sound front of a part of a segment.

    :ivar found: what was read
    :ivar first_timestamp_ms: store time of its first record; 0 if it has none
    :ivar stop_offset: up to where it was asked for; what starts before that belongs to it
    """

    found: QueueOffsetSurvey
    first_timestamp_ms: int
    stop_offset: int

    def follows(self, found: QueueOffsetSurvey) -> bool:
        """Whether it goes on right behind what was found, and is not older."""
        is_older = self.found.records and self.first_timestamp_ms < found.last_timestamp_ms
        return self.found.start_offset == found.end_offset and not is_older

    def to_json(self) -> str:
        """One line."""
        found = self.found
        chains = [[*queue, *attrs.astuple(chain)] for queue, chain in found.chains.items()]
        row = {**attrs.asdict(found, recurse=False), "chains": chains}
        del row["next_offsets"]  # the chains say them
        return json.dumps({**row, "first": self.first_timestamp_ms, "stop": self.stop_offset})

    @classmethod
    def from_json(cls, line: str) -> Section:
        """Read such a line; raises ``ValueError``, ``KeyError`` or ``TypeError`` for any other."""
        row: dict[str, Any] = json.loads(line)
        first, stop = int(row.pop("first")), int(row.pop("stop"))
        chains = {
            (topic, number): QueueOffsetChain(*of) for topic, number, *of in row.pop("chains")
        }
        offsets = {queue: chain.next for queue, chain in chains.items()}
        return cls(QueueOffsetSurvey(**row, next_offsets=offsets, chains=chains), first, stop)


def section(
    source: FileSource, start: int, length: int, *, sealed: bool = False, inside: bool = False
) -> Section:
    """Read ``length`` bytes of a segment from ``start`` on, as far as they are sound.

    :param inside: whether a record may reach over ``start``: what is left of it is passed over
    """
    found, first_ms, stop = QueueOffsetSurvey(start, start), 0, start + length
    for piece in scan(source, start, stop, judge=_InOrder(found), sealed=sealed):
        if isinstance(piece, Blank) and piece.offset == found.end_offset:
            found.end_offset = piece.offset + piece.size
        elif isinstance(piece, RecordBatch):
            if not found.records:
                found.start_offset = piece.base_offset + int(piece.starts[0])
                first_ms = int(piece.store_timestamps_ms[0])
            found.count(piece)
        elif found.records or not inside:
            break
    return Section(found, first_ms, stop)


@attrs.frozen
class _InOrder:
    """A ``RecordFilter`` that accepts only records which need no other proof."""

    found: QueueOffsetSurvey

    def leading(self, batch: RecordBatch, accepted: int) -> int:
        times = batch.store_timestamps_ms
        if accepted or int(times[0]) < self.found.last_timestamp_ms:
            return accepted
        older = (times[1:] < times[:-1]).nonzero()[0]
        return int(older[0]) + 1 if len(older) else len(batch)

    def accepts(
        self,
        record: memoryview,  # noqa: ARG002  # a judge is given all three
        offset: int,  # noqa: ARG002  # a judge is given it
        gap_start: int,  # noqa: ARG002  # a judge is given it
    ) -> bool:
        return True  # reading ends before the gap, wherever that ends


def answer(asked: TextIO) -> Iterator[str]:
    """A line for each part that the first line of ``asked`` names."""
    request = json.loads(asked.readline())
    size, sealed = int(request["size_bytes"]), bool(request.get("sealed"))
    source = FileSource(RealFileSystem(), Path(request["directory"]), size)
    for start, length in request["parts"]:
        inside = start % size != 0
        yield section(source, start, length, sealed=sealed, inside=inside).to_json()


def main() -> None:
    """Answer on the standard output."""
    for line in answer(sys.stdin):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
