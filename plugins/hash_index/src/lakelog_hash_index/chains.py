"""Computes the chain links of many new entries at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from lakelog.accelerate import current
from lakelog.runtime.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

ENTRY_DTYPE: Final = [("hash", ">i4"), ("offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")]
"""An entry of an index file, 20 bytes."""


@attrs.frozen(eq=False)
class Links:
    """The links of a run of new entries.

    :ivar previous: ``int32``, for each entry the previous one in its slot, or 0
    :ivar slots: ``int64``, the distinct slots with new entries
    :ivar heads: ``int64``, the newest entry of each of ``slots``
    :ivar opened: number of ``slots`` that were empty
    """

    previous: NDArray[np.int32]
    slots: NDArray[np.int64]
    heads: NDArray[np.int64]
    opened: int


def follow(
    heads: NDArray[np.int32], entries: NDArray[Any], first: int, last_offset: int
) -> tuple[int, int] | None:
    """Set ``heads`` to the newest of ``entries``, if compiled code finds that all are sound.

    :param first: the number of the first entry
    :param last_offset: the physical offset in the entry before it
    :returns: the number of slots that were empty, and the last physical offset; ``None`` if an
        entry is not sound, or without compiled code
    """
    accelerator = current()
    if accelerator is None:
        return None
    return accelerator.follow_entries(entries.view(np.uint8), first, last_offset, heads)


def link(heads: NDArray[Any], slots: NDArray[Any], first: int) -> Links:
    """Link entries ``first``, ``first + 1``, ... to ``slots``, whose present content is ``heads``.

    Changes nothing. A value that is not the number of an earlier entry counts as an empty slot.
    """
    count = len(slots)
    if not count:
        none = np.zeros(0, np.int64)
        return Links(none.astype(np.int32), none, none, 0)
    packed = np.sort((slots.astype(np.int64) << 32) | np.arange(count))
    ordered, at = packed >> 32, packed & 0xFFFFFFFF
    starts = np.ones(count, np.bool_)
    starts[1:] = ordered[1:] != ordered[:-1]
    found = heads[ordered[starts]].astype(np.int64)
    found[(found < 0) | (found >= first)] = 0
    before = np.empty(count, np.int64)
    before[1:] = at[:-1] + first
    before[starts] = found
    previous = np.empty(count, np.int32)
    previous[at] = before
    last = np.append(starts[1:], True)
    return Links(previous, ordered[last], at[last] + first, int((found == 0).sum()))
