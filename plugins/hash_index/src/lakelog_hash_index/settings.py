"""Section ``[hash-index]``."""

from __future__ import annotations

from typing import Final

import attrs
from attrs import field, validators

from lakelog_hash_index.shape import IndexShape

LARGEST_FILE_BYTES: Final = (1 << 31) - 1
"""RocketMQ computes the length of an index file as a signed 32-bit integer."""


@attrs.frozen(kw_only=True)
class HashIndexSettings:
    """Settings of the index; both numbers must match existing files.

    :ivar slots: hash slots of each file (RocketMQ's ``maxHashSlotNum``)
    :ivar entries: entries of each file, one more than the keys that it holds (``maxIndexNum``)
    """

    slots: int = field(default=5_000_000, validator=validators.ge(1))
    entries: int = field(default=20_000_000, validator=validators.ge(2))

    def __attrs_post_init__(self) -> None:
        length = self.shape.length
        if length > LARGEST_FILE_BYTES:
            raise ValueError(
                f"slots={self.slots} and entries={self.entries} make files of {length} bytes; "
                f"RocketMQ opens at most {LARGEST_FILE_BYTES}: set fewer"
            )

    @property
    def shape(self) -> IndexShape:
        """The layout of a file."""
        return IndexShape(self.slots, self.entries)
