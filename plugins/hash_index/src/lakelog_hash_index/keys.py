"""The keys of a run of records, found in their property strings without a dict per record.

RocketMQ's order: UNIQ_KEY first, then each piece of KEYS that is not empty, split by one space.
Of a property that repeats the last value counts; one without a value is no property. Records that
roll a transaction back have no keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import numpy as np
from numpy.typing import NDArray

from lakelog.properties import KEY_SEPARATOR, KEYS, UNIQUE_KEY
from lakelog.sysflag import ROLLBACK, TRANSACTION_MASK
from lakelog_hash_index.fewkeys import FEW, few_keys
from lakelog_hash_index.javahash import after, hash_all, key_hash
from lakelog_hash_index.rows import Longs, Octets, groups, rows

if TYPE_CHECKING:
    from lakelog.codec import RecordBatch

_NAME_END: Final = 1
_PROPERTY_END: Final = 2
_SPACE: Final = ord(KEY_SEPARATOR)
_TOPIC_END: Final = ord("#")


@attrs.frozen(eq=False)
class Keys:
    """Keys of records, in log order.

    :ivar records: ``int64``, index of the record in its batch
    :ivar hashes: ``int32``, what the index keeps of topic and key
    """

    records: Longs
    hashes: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, part: slice) -> Keys:
        """Some of the keys."""
        return Keys(self.records[part], self.hashes[part])


@attrs.frozen(eq=False)
class _Spans:
    """Stretches of text: the row each stands in, its first byte and the one behind it."""

    rows: Longs
    starts: Longs
    ends: Longs

    def __getitem__(self, part: NDArray[np.bool_]) -> _Spans:
        return _Spans(self.rows[part], self.starts[part], self.ends[part])


def find_keys(batch: RecordBatch) -> Keys:
    """All keys of ``batch``."""
    if len(batch) <= FEW:
        found, few = few_keys(batch)
        return Keys(np.array(found, np.int64), np.array(few, np.int32))
    text, begins, members = _property_text(batch)
    names = np.flatnonzero(text == _NAME_END)
    ends = np.flatnonzero(text == _PROPERTY_END)
    unique = _values(UNIQUE_KEY, text, begins, names, ends)
    pieces = _split(text, _values(KEYS, text, begins, names, ends))
    records = members[np.concatenate((unique.rows, pieces.rows))]
    starts = np.concatenate((unique.starts, pieces.starts))
    lengths = np.concatenate((unique.ends, pieces.ends)) - starts
    order = np.argsort(records, kind="stable")
    records = records[order]
    hashes, units = hash_all(text, starts[order], lengths[order])
    return Keys(records, key_hash(after(_prefixes(batch, records), hashes, units)))


def _prefixes(batch: RecordBatch, records: Longs) -> NDArray[np.uint32]:
    """Hash of ``topic + "#"`` for each key."""
    if not len(records):
        return np.zeros(0, np.uint32)
    hashes, _ = hash_all(batch.octets, batch.topic_positions, batch.topic_lengths)
    return np.asarray(hashes * np.uint32(31) + np.uint32(_TOPIC_END))[records]


def _property_text(batch: RecordBatch) -> tuple[Octets, Longs, Longs]:
    """Property strings of records that may have keys, each between two property ends.

    With them where each row starts, and of which record it is.
    """
    lengths = batch.property_lengths
    rolled_back = (batch.sys_flags & TRANSACTION_MASK) == ROLLBACK
    may = np.flatnonzero(~rolled_back & (lengths > 0))
    blocks, widths, members = [np.zeros(0, np.uint8)], [], [np.zeros(0, np.int64)]
    for length, part in groups(lengths[may]):
        block = np.full((len(part), length + 2), _PROPERTY_END, np.uint8)
        block[:, 1:-1] = rows(batch.octets, batch.property_positions[may[part]], length)
        blocks.append(block.reshape(-1))
        widths.append(np.full(len(part), length + 2))
        members.append(may[part])
    begins = np.cumsum(np.concatenate([np.zeros(1, np.int64), *widths]))[:-1]
    return np.concatenate(blocks), begins, np.concatenate(members)


def _values(name: str, text: Octets, begins: Longs, names: Longs, ends: Longs) -> _Spans:
    """The value of the property ``name`` in each row that has it."""
    wanted = np.frombuffer(bytes([_PROPERTY_END]) + name.encode(), np.uint8)
    width = len(wanted)
    at = names[(text[names - 1] == wanted[-1]) & (names >= width)]
    at = at[(rows(text, at - width, width) == wanted).all(axis=1)]
    stops = ends[np.searchsorted(ends, at)]
    filled = stops > at + 1
    at, stops = at[filled], stops[filled]
    row = np.searchsorted(begins, at, side="right") - 1
    last = np.ones(len(row), np.bool_)
    last[:-1] = row[1:] != row[:-1]
    return _Spans(row, at + 1, stops)[last]


def _split(text: Octets, values: _Spans) -> _Spans:
    """The pieces between spaces that are not empty."""
    spaces = np.flatnonzero(text == _SPACE)
    if not len(spaces) or not len(values.rows):
        return values
    owner = np.searchsorted(values.starts, spaces, side="right") - 1
    spaces = spaces[(owner >= 0) & (spaces < values.ends[owner])]
    starts = np.sort(np.concatenate((values.starts, spaces + 1)))
    ends = np.sort(np.concatenate((values.ends, spaces)))
    row = values.rows[np.searchsorted(values.starts, starts, side="right") - 1]
    return _Spans(row, starts, ends)[ends > starts]
