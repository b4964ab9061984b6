"""Chains of entries: what each slot's new entries point back to, computed for many at once."""

from __future__ import annotations

from typing import Any, Final

import attrs
import numpy as np
from numpy.typing import NDArray

ENTRY_DTYPE: Final = np.dtype(
    [("hash", ">i4"), ("offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")]
)
"""An entry of an index file, 20 bytes."""


@attrs.frozen(eq=False)
class Links:
    """How a run of new entries joins the chains.

    :ivar previous: ``int32``, for each entry the one before it in its slot, or 0
    :ivar slots: ``int64``, each slot that has new entries, once
    :ivar heads: ``int64``, the newest entry of each of ``slots``
    :ivar opened: how many of ``slots`` were empty
    """

    previous: NDArray[np.int32]
    slots: NDArray[np.int64]
    heads: NDArray[np.int64]
    opened: int


def link(heads: NDArray[Any], slots: NDArray[Any], first: int) -> Links:
    """Entries ``first``, ``first + 1`` and so on go to ``slots``; ``heads`` is what stands there.

    Changes nothing. What is no number of an earlier entry counts as an empty slot.
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
