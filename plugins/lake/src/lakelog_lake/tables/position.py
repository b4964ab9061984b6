"""How far a store has landed in a table: a range, and the last record of it as a fingerprint.

The table is the only place that counts: a commit adds files and moves the position at once. As
text it is one line of compact JSON under :func:`key`, with these members::

    v        2; commits of version 1 said the position of one store only, and nothing of ``chosen``
    start    first byte of the log that the commit landed
    end      behind the last one; the next range starts there
    last     [offset, size, crc] of the last record before ``end``, CRC-32 of all of its bytes, or
             UNCHECKED; null while nothing has landed
    next     {topic: {queue id: next queue offset}}, of what has landed so far
    commit   number of the commit, by chance, by which its writer knows it again
    chosen   which messages land, see log.selection; null where that is not known
    took     [commit, ms]: how long the writer's commit before this one took; null for its first

A commit says the positions of all stores in the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from secrets import randbits
from typing import Final, TypeAlias

import attrs

from lakelog.files.state.pins import Fingerprint

PREFIX: Final = "lakelog.position."
UNCHECKED: Final = 1 << 32
"""In the place of a CRC-32: rows told where the record stands, and they do not have it."""
_VERSION: Final = 2
_VERSIONS: Final = (1, _VERSION)
_COMMIT_BITS: Final = 53  # what every JSON reader keeps exactly

QueueEnds: TypeAlias = "Mapping[str, Mapping[int, int]]"
"""By topic and queue id the offset that the next message of that queue takes."""


@attrs.frozen
class Position:
    """What a commit says of one store.

    :ivar start: first byte of the range that this commit landed
    :ivar end: behind its last byte
    :ivar last: the last record before ``end``; ``None`` while no record has landed
    :ivar next_offsets: see :data:`QueueEnds`
    :ivar commit: by which a writer knows its own commit again
    :ivar chosen: which messages land, as a text; ``None`` where that is not known
    :ivar took_ms: an earlier commit of the same writer, by its number, and how long it took
    """

    start: int
    end: int
    last: Fingerprint | None = None
    next_offsets: QueueEnds = attrs.field(factory=dict)
    commit: int = attrs.field(factory=lambda: randbits(_COMMIT_BITS))
    chosen: str | None = None
    took_ms: tuple[int, int] | None = None


def key(store: str) -> str:
    """The name of the property that holds the position of ``store``."""
    return PREFIX + store


def to_text(position: Position) -> str:
    """One line of JSON."""
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
    """The position that ``text`` says; raises ``ValueError`` for what no lakelog wrote."""
    try:
        found = json.loads(text)
        if found["v"] not in _VERSIONS:
            raise ValueError(f"it has version {found['v']}; this lakelog knows {_VERSION}")
        last = None if found["last"] is None else Fingerprint(*map(int, found["last"]))
        ends = {
            topic: {int(queue): int(end) for queue, end in queues.items()}
            for topic, queues in found["next"].items()
        }
        at, commit = (int(found["start"]), int(found["end"])), int(found["commit"])
        took = found.get("took") and tuple(map(int, found["took"]))
        return Position(*at, last, ends, commit, found.get("chosen"), took)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{text[:200]!r} is no position: {error!r}") from None


def texts_in(properties: Mapping[str, str]) -> dict[str, str]:
    """The texts of positions among ``properties``, by store."""
    return {
        name.removeprefix(PREFIX): text
        for name, text in properties.items()
        if name.startswith(PREFIX)
    }


def says_all(texts: Iterable[str]) -> bool:
    """Whether the commit that has these texts says the positions of all stores in the table."""
    return any(text.startswith(f'{{"v":{_VERSION},') for text in texts)


def merged(old: QueueEnds, new: QueueEnds) -> QueueEnds:
    """Where each queue ends after ``new`` has landed behind ``old``."""
    return {topic: {**old.get(topic, {}), **new.get(topic, {})} for topic in sorted({*old, *new})}
