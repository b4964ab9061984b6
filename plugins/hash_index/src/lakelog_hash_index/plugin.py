"""The plugin that offers the dispatcher ``hash-index``, with its settings ``[hash-index]``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from stat import S_ISREG
from typing import Final

import attrs
from attrs import field, validators

from lakelog.format.layout import INDEX_DIR
from lakelog.hooks import Context, Factory, Kind
from lakelog.hooks.hookspecs import hookimpl
from lakelog_hash_index.shape import IndexShape, usual_shape

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


def from_index(path: Path) -> Iterator[tuple[str, int, Path]]:
    """Slots and entries of the index of the store in ``path``, with the file that shows them."""
    try:
        files = sorted((path / INDEX_DIR).iterdir())
    except OSError:
        return
    for file in files:
        try:
            status = file.lstat()  # symbolic links are not files of a store
        except OSError:  # a running owner may delete the oldest files meanwhile
            continue
        shape = usual_shape(status.st_size) if S_ISREG(status.st_mode) else None
        if shape is not None:
            yield "slots", shape.slots, file
            yield "entries", shape.entries, file
            return


def make(settings: HashIndexSettings, context: Context) -> object:
    """Make the index from its settings: on disk for an owner, in memory for a reader."""
    if context.read_only:
        from lakelog_hash_index.reader import ReaderIndex

        return ReaderIndex(settings.shape, context)
    from lakelog_hash_index.owner import OwnerIndex

    return OwnerIndex(settings.shape, context)


@hookimpl
def lakelog_dispatchers() -> Sequence[Factory]:
    """Offer the dispatcher ``hash-index``."""
    summary = "finds messages by key: RocketMQ's index files"
    settings = HashIndexSettings
    return [Factory(Kind.DISPATCHER, "hash-index", settings, make, summary, infer=from_index)]
