"""The keys of a few records, one by one: arrays cost more than they save there.

What is found is what :mod:`lakelog_hash_index.keys` finds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lakelog.properties import KEY_SEPARATOR, KEYS, UNIQUE_KEY
from lakelog.sysflag import ROLLBACK, TRANSACTION_MASK
from lakelog_hash_index.javahash import hash_key

if TYPE_CHECKING:
    from lakelog.codec import RecordBatch

FEW: Final = 8
_UNIQUE_KEY: Final = UNIQUE_KEY.encode()
_KEYS: Final = KEYS.encode()
_SPACE: Final = KEY_SEPARATOR.encode()


def few_keys(batch: RecordBatch) -> tuple[list[int], list[int]]:
    """Index of the record, and hash, of each key, in log order."""
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
    return records, hashes


def _keys(properties: bytes) -> Iterator[bytes]:
    values: dict[bytes, bytes] = {}
    for each in properties.split(b"\x02"):
        name, _, value = each.partition(b"\x01")
        if value:
            values[name] = value
    if _UNIQUE_KEY in values:
        yield values[_UNIQUE_KEY]
    yield from filter(None, values.get(_KEYS, b"").split(_SPACE))
