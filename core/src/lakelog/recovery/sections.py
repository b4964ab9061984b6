"""Finds how far a part of a segment is sound, independently of all other parts.

Sound means: contiguous whole records whose store times do not decrease. That needs no further
proof, so several processes can check parts in parallel. A part that starts inside a segment may
start inside a record. Its sound section then begins at the next record, and the caller checks that
the part before ends exactly there.

As a program, it reads one line of input that names parts, and writes a line of JSON for each.
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
    """The sound section of a part of a segment.

    :ivar found: the records read
    :ivar first_timestamp_ms: store time of its first record; 0 without records
    :ivar stop_offset: the end of the part; a record that starts before it belongs to the part
    """

    found: QueueOffsetSurvey
    first_timestamp_ms: int
    stop_offset: int

    def follows(self, found: QueueOffsetSurvey) -> bool:
        """Whether it continues ``found`` directly, with store times that do not decrease."""
        is_older = self.found.records and self.first_timestamp_ms < found.last_timestamp_ms
        return self.found.start_offset == found.end_offset and not is_older

    def to_json(self) -> str:
        """One line."""
        found = self.found
        chains = [[*queue, *attrs.astuple(chain)] for queue, chain in found.chains.items()]
        row = {**attrs.asdict(found, recurse=False), "chains": chains}
        del row["next_offsets"]  # contained in the chains
        return json.dumps({**row, "first": self.first_timestamp_ms, "stop": self.stop_offset})

    @classmethod
    def from_json(cls, line: str) -> Section:
        """Parse such a line; raises ``ValueError``, ``KeyError`` or ``TypeError`` if invalid."""
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
    """Read ``length`` bytes of a segment from ``start``, as far as they are sound.

    :param inside: whether a record may extend over ``start``; the rest of it is skipped
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
        return True  # the reader stops before the gap in any case


def answer(asked: TextIO) -> Iterator[str]:
    """Yield a line for each part named in the first line of ``asked``."""
    request = json.loads(asked.readline())
    size, sealed = int(request["size_bytes"]), bool(request.get("sealed"))
    source = FileSource(RealFileSystem(), Path(request["directory"]), size)
    for start, length in request["parts"]:
        inside = start % size != 0
        yield section(source, start, length, sealed=sealed, inside=inside).to_json()


def main() -> None:
    """Write the answers to standard output."""
    for line in answer(sys.stdin):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
