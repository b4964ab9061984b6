"""Reads one index file, through a read-only map."""

from __future__ import annotations

from mmap import mmap
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any, Final

from lakelog.errors import CorruptIndex
from lakelog.files.filesystem import FileSystem, unreadable
from lakelog.runtime.cached import cached_property
from lakelog_hash_index.names import is_name
from lakelog_hash_index.shape import ENTRY, SLOT, Header, IndexShape

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TRIES: Final = 3
_TRY_AGAIN_SECONDS: Final = 0.001


class IndexFile:
    """A file of the full length; mapped on first use, and readable after it was deleted."""

    def __init__(self, files: FileSystem, path: Path, shape: IndexShape) -> None:
        self.path = path
        self.shape = shape
        self._files = files

    @cached_property
    def map(self) -> mmap:
        """All of its bytes, read-only; raises :class:`~lakelog.errors.ReadFailed`."""
        try:
            file = self._files.open(self.path)
            try:
                return file.map(self.shape.length, writable=False)
            finally:
                file.close()
        except OSError as error:
            raise unreadable(self.path, error) from error

    def header(self) -> Header:
        """The present header."""
        return Header.unpack(self.map[: self.shape.slot_at(0)])

    def settled_header(self) -> Header:
        """The header once its fields are consistent, as its owner writes them one by one.

        A damaged one is returned as it is, after some tries.
        """
        header = self.header()
        for _ in range(_TRIES):
            if not any(header.problems(self.shape)):
                break
            sleep(_TRY_AGAIN_SECONDS)
            header = self.header()
        return header

    def slot(self, slot: int) -> int:
        """The number of the newest entry of ``slot``."""
        return int(SLOT.unpack_from(self.map, self.shape.slot_at(slot))[0])

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """``keyHash, phyOffset, timeDiffSeconds, previousEntry``."""
        key_hash, offset, seconds, previous = ENTRY.unpack_from(
            self.map, self.shape.entry_at(number)
        )
        return key_hash, offset, seconds, previous

    def offset(self, number: int) -> int:
        """The physical offset in entry ``number``."""
        return self.entry(number)[1]

    def slots(self) -> NDArray[Any]:
        """All slots, ``>i4``, without a copy."""
        import numpy as np

        return np.frombuffer(self.map, ">i4", self.shape.slots, self.shape.slot_at(0))

    def entries(self) -> NDArray[Any]:
        """All entries, without a copy."""
        import numpy as np

        from lakelog_hash_index.chains import ENTRY_DTYPE

        return np.frombuffer(self.map, ENTRY_DTYPE, self.shape.entries, self.shape.slots_end)

    def corrupt(self, what: str, at: int) -> CorruptIndex:
        """The error for damage at byte ``at``."""
        return CorruptIndex(
            f"{what} (at byte {at}); `lakelog rebuild --index` builds the index again from the log",
            path=self.path,
        )


def index_files(
    files: FileSystem, directory: Path, shape: IndexShape
) -> tuple[list[IndexFile], list[CorruptIndex]]:
    """The files of an index, oldest first, and an error for each of a wrong length.

    Empty files, which a crash left while creating one, and files with other names are skipped.
    """
    found, wrong = [], []
    for name, length in files.list(directory):
        if is_name(name) and length:
            if length == shape.length:
                found.append(IndexFile(files, directory / name, shape))
            else:
                wrong.append(_wrong_length(directory / name, length, shape))
    return found, wrong


def _wrong_length(path: Path, length: int, shape: IndexShape) -> CorruptIndex:
    return CorruptIndex(
        f"it has {length} bytes, but hash-index.slots={shape.slots} and "
        f"hash-index.entries={shape.entries} make {shape.length}; set them as they were when "
        "it was made, or run `lakelog rebuild --index`",
        path=path,
    )
