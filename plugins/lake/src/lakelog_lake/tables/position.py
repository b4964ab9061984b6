"""The position of a store in a table: a range of the log, and the fingerprint of its last record.

The table is the only authority: a commit adds files and sets the position atomically. Its text is
one line of compact JSON under :func:`key`, with these members::

    v        2
    start    first byte of the log that the commit landed
    end      end (exclusive); the next range starts there
    last     [offset, size, crc] of the last record before ``end``, CRC-32 of all of its bytes, or
             UNCHECKED; null while nothing has landed
    next     {topic: {queue id: next queue offset}}, of all rows so far
    commit   random number of the commit, by which its writer recognises it
    chosen   the selection of messages, see log.selection; null if not known
    took     [commit, ms]: duration of the writer's previous commit; null for its first

A commit has the positions of all stores in the table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from secrets import randbits
from typing import Final, TypeAlias

import attrs

from lakelog.format.checksum import Fingerprint

PREFIX: Final = "lakelog.position."
UNCHECKED: Final = 1 << 32
"""Stands for an unknown CRC-32, in positions that were computed from rows."""
_VERSION: Final = 2
_COMMIT_BITS: Final = 53  # integers that every JSON reader keeps exactly
QueueEnds: TypeAlias = "Mapping[str, Mapping[int, int]]"
"""The offset of each queue's next message, by topic and queue id."""


@attrs.frozen
class Position:
    """The position of one store in a commit.

    :ivar start: first byte of the range that this commit landed
    :ivar end: end of the range, exclusive
    :ivar last: the last record before ``end``; ``None`` while no record has landed
    :ivar next_offsets: see :data:`QueueEnds`
    :ivar commit: random number by which a writer recognises its own commit
    :ivar chosen: the selection of messages as text; ``None`` if not known
    :ivar took_ms: number and duration of an earlier commit of the same writer
    """

    start: int
    end: int
    last: Fingerprint | None = None
    next_offsets: QueueEnds = attrs.field(factory=dict)
    commit: int = attrs.field(factory=lambda: randbits(_COMMIT_BITS))
    chosen: str | None = None
    took_ms: tuple[int, int] | None = None


def key(store: str) -> str:
    """The name of the property with the position of ``store``."""
    return PREFIX + store


def to_text(position: Position) -> str:
    """Write one line of JSON."""
    last = position.last
    return json.dumps(
        {
            "v": _VERSION,
            "start": position.start,
            "end": position.end,
            "last": None if last is None else [last.offset, last.size, last.crc],
            "next": position.next_offsets,
            "commit": position.commit,
            "chosen": position.chosen,
            "took": position.took_ms,
        },
        separators=(",", ":"),
        ensure_ascii=False,
    )


def from_text(text: str) -> Position:
    """Parse a position; raises ``ValueError`` for other text."""
    try:
        found = json.loads(text)
        if found["v"] != _VERSION:
            raise ValueError(f"it has version {found['v']}, but lakelog reads {_VERSION}")
        last = None if found["last"] is None else Fingerprint(*map(int, found["last"]))
        ends = {
            topic: {int(queue): int(end) for queue, end in queues.items()}
            for topic, queues in found["next"].items()
        }
        at, commit = (int(found["start"]), int(found["end"])), int(found["commit"])
        took = found.get("took") and tuple(map(int, found["took"]))
        return Position(*at, last, ends, commit, found.get("chosen"), took)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{text[:200]!r} is not a position: {error!r}") from None


def texts_in(properties: Mapping[str, str]) -> dict[str, str]:
    """The texts of positions among ``properties``, by store."""
    return {
        name.removeprefix(PREFIX): text
        for name, text in properties.items()
        if name.startswith(PREFIX)
    }


def merged(old: QueueEnds, new: QueueEnds) -> QueueEnds:
    """The next offset of each queue after ``new`` has landed behind ``old``."""
    return {topic: {**old.get(topic, {}), **new.get(topic, {})} for topic in sorted({*old, *new})}
