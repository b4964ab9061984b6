"""Many bodies back to back in one buffer, as Arrow keeps them; none is copied on its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from lakelog.message import Body

_OFFSETS = {
    "binary": np.int32,
    "string": np.int32,
    "large_binary": np.int64,
    "large_string": np.int64,
}


class BodyColumn(Sequence[memoryview]):
    """Bodies that can be put as they stand.

    :ivar data: the buffer; it must not change until the put has returned
    :ivar offsets: ``int64``: where each body starts in it, in bytes, and where the last one ends

    Raises ``ValueError`` for offsets that go backwards or out of the buffer.
    """

    __slots__ = ("data", "offsets")

    def __init__(self, data: Any, offsets: Any) -> None:
        self.data = memoryview(data).cast("B")
        self.offsets: NDArray[np.int64] = np.asarray(offsets, np.int64)
        _check(self.offsets, len(self.data))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> memoryview: ...

    @overload
    def __getitem__(self, index: slice) -> BodyColumn: ...

    def __getitem__(self, index: int | slice) -> memoryview | BodyColumn:
        """One body, or the column of some that stand side by side."""
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise ValueError("bodies of one buffer can be taken side by side only")
            return BodyColumn(self.data, self.offsets[start : max(start, stop) + 1])
        at = range(len(self))[index]
        return self.data[int(self.offsets[at]) : int(self.offsets[at + 1])]


def _check(offsets: NDArray[np.int64], size_bytes: int) -> None:
    if offsets.ndim != 1 or not len(offsets):
        raise ValueError("offsets must be numbers in a row, one more than there are bodies")
    if offsets[0] < 0 or offsets[-1] > size_bytes or (offsets[1:] < offsets[:-1]).any():
        raise ValueError(f"offsets must ascend from 0 or more to {size_bytes} bytes or less")


def body_column(bodies: Any) -> Sequence[Body]:
    """``bodies`` as :class:`~lakelog.message.MessageColumns` takes them.

    An Arrow array of binaries or strings becomes a :class:`BodyColumn`; all else is passed on.

    Raises ``ValueError`` for an Arrow array of another type, or with nulls in it.
    """
    if not hasattr(bodies, "buffers"):
        return bodies  # type: ignore[no-any-return]  # the put checks them
    kind = str(bodies.type)
    if kind not in _OFFSETS:
        raise ValueError(f"the bodies are {kind}; they must be {', '.join(_OFFSETS)}")
    if bodies.null_count:
        raise ValueError(f"{bodies.null_count} of the bodies are null; fill them first")
    _, offsets, data = bodies.buffers()
    if not len(bodies):
        return BodyColumn(b"", [0])
    all_offsets = np.frombuffer(offsets, _OFFSETS[kind])
    return BodyColumn(data or b"", all_offsets[bodies.offset : bodies.offset + len(bodies) + 1])
