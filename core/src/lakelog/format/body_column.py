"""Message bodies back to back in one buffer, in Arrow's layout; no body is copied separately."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from lakelog.lazy import np
from lakelog.message import Body

if TYPE_CHECKING:
    from numpy.typing import NDArray


_OFFSETS = {
    "binary": np.int32,
    "string": np.int32,
    "large_binary": np.int64,
    "large_string": np.int64,
}


class BodyColumn(Sequence[memoryview]):
    """A column of bodies that can be put without copying them first.

    :ivar data: the buffer; it must not change until the put has returned
    :ivar offsets: ``int64``: start of each body in ``data``, in bytes, followed by the end of the
        last

    Raises ``ValueError`` if the offsets decrease or exceed the buffer.
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
        """One body, or a column of adjacent bodies."""
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise ValueError("only adjacent bodies of one buffer can be selected")
            return BodyColumn(self.data, self.offsets[start : max(start, stop) + 1])
        at = range(len(self))[index]
        return self.data[int(self.offsets[at]) : int(self.offsets[at + 1])]


def _check(offsets: NDArray[np.int64], size_bytes: int) -> None:
    if offsets.ndim != 1 or not len(offsets):
        raise ValueError("offsets must be a flat array of numbers, one more than bodies")
    if offsets[0] < 0 or offsets[-1] > size_bytes or (offsets[1:] < offsets[:-1]).any():
        raise ValueError(f"offsets must ascend from 0 or more to {size_bytes} bytes or less")


def body_column(bodies: Any) -> Sequence[Body]:
    """Convert ``bodies`` to the form that :class:`~lakelog.message.MessageColumns` accepts.

    An Arrow array of binaries or strings becomes a :class:`BodyColumn`; anything else is returned
    unchanged.

    Raises ``ValueError`` for an Arrow array of another type, or one that contains nulls.
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
