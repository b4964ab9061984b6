"""Units of a consume queue as columns: the log positions of consecutive queue offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Longs: TypeAlias = NDArray[np.int64]
    Ints: TypeAlias = NDArray[np.int32]
    Flags: TypeAlias = NDArray[np.bool_]
else:
    Longs = Ints = Flags = Any


@attrs.frozen(eq=False)
class Units:
    """A run of units; arrays with one element per unit, integers in the machine's byte order.

    :ivar queue_offsets: ``int64``, queue offset of each unit; for a batch, of its first message
    :ivar offsets: ``int64``, physical offset of the record, in bytes
    :ivar sizes: ``int32``, length of the record, in bytes
    :ivar tags_codes: ``int64``, Java's hash of the tags; for a delayed message, its delivery time
        in ms
    :ivar counts: ``int32``, messages in the record: 1 except for batches
    """

    queue_offsets: Longs
    offsets: Longs
    sizes: Ints
    tags_codes: Longs
    counts: Ints

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, part: slice | Longs | Flags) -> Units:
        """A selection of the units."""
        return Units(*(column[part] for column in attrs.astuple(self, recurse=False)))
