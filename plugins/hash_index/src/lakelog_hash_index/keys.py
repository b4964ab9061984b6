"""Finds the keys of a run of records, and their hashes.

In RocketMQ's order: UNIQ_KEY first, then the non-empty parts of KEYS, split at single spaces. Of a
repeated property the last value counts; a property without a value is ignored. Records that roll
back a transaction have no keys.

The hash is Java's ``String.hashCode``: sum of unit * 31^(units behind it), 32 bits.

The keys are RocketMQ's, and its brokers read these files. An index by another property is a
dispatcher of its own (:class:`lakelog.hooks.Dispatcher`), as in
``examples/dispatch_into_sqlite.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

import attrs

from lakelog.accelerate import current
from lakelog.format.layout import ROLLBACK, TRANSACTION_MASK
from lakelog.format.properties import KEY_SEPARATOR, KEYS, UNIQUE_KEY
from lakelog.format.queue_offsets import Ints, Longs
from lakelog.format.record_batch import RecordBatch
from lakelog.lazy import np

_UNIQUE_KEY: Final = UNIQUE_KEY.encode()
_KEYS: Final = KEYS.encode()
_SPACE: Final = KEY_SEPARATOR.encode()
_MASK: Final = 0xFFFFFFFF
_SIGN: Final = 0x80000000


@attrs.frozen(eq=False)
class Keys:
    """Keys of records, in log order.

    :ivar records: ``int64``, index of the record in its batch
    :ivar hashes: ``int32``, the stored hash of topic and key
    """

    records: Longs
    hashes: Ints

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, part: slice) -> Keys:
        """A slice of the keys."""
        return Keys(self.records[part], self.hashes[part])


def count_keys(batch: RecordBatch) -> int:
    """The number of keys of ``batch``."""
    accelerator = current()
    found = None if accelerator is None else accelerator.keys(batch.buffer, batch.raw_starts)
    return len(find_keys(batch)) if found is None else len(found[1]) // 4


def find_keys(batch: RecordBatch) -> Keys:
    """All keys of ``batch``."""
    accelerator = current()
    if accelerator is not None:
        found = accelerator.keys(batch.buffer, batch.starts)
        if found is not None:
            return Keys(np.frombuffer(found[0], np.int64), np.frombuffer(found[1], np.int32))
    records: list[int] = []
    hashes: list[int] = []
    types = (batch.sys_flags & TRANSACTION_MASK).tolist()
    for record, (topic, properties) in enumerate(
        zip(batch.topics, batch.property_strings, strict=True)
    ):
        if types[record] != ROLLBACK:
            for key in _keys(properties):
                records.append(record)
                hashes.append(hash_key(topic, key.decode(errors="replace")))
    return Keys(np.array(records, np.int64), np.array(hashes, np.int32))


def _keys(properties: bytes) -> Iterator[bytes]:
    values: dict[bytes, bytes] = {}
    for each in properties.split(b"\x02"):
        name, _, value = each.partition(b"\x01")
        if value:
            values[name] = value
    if _UNIQUE_KEY in values:
        yield values[_UNIQUE_KEY]
    yield from filter(None, values.get(_KEYS, b"").split(_SPACE))


def hash_text(text: str) -> int:
    """The hash of one string, as an unsigned 32-bit integer.

    >>> hash_text("TagA")
    2598919
    """
    utf16 = text.encode(f"utf-16-{sys.byteorder[0]}e", "surrogatepass")  # without a byte order mark
    value = 0
    for unit in memoryview(utf16).cast("H"):
        value = value * 31 + unit & _MASK
    return value


def hash_key(topic: str, key: str) -> int:
    """The stored hash of a key: the absolute value; 0 for -2**31, which has none."""
    unsigned = hash_text(f"{topic}#{key}")
    return unsigned if unsigned < _SIGN else -unsigned & _MASK & ~_SIGN
