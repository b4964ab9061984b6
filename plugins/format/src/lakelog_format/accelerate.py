"""The interface to compiled code that encodes and decodes records.

The Python code is the specification, and works without compiled code. A compiled call returns the
same result, or ``None`` without side effects. The caller then uses the Python path. So errors are
defined once, and no result depends on the accelerator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lakelog_format.message import Message, StoredMessage

PlainRecords: TypeAlias = "tuple[int, int, int, int, list[tuple[str, int, int, int, int, int]]]"
"""A summary of consecutive records: their end offset and number; the store times of the first and
the last one, in ms since 1970; and a row per queue. A row has topic, queue id, number of records,
queue offset of the first record, its start, and the end of the last record; both are offsets of the
log in bytes.
"""


@runtime_checkable
class RecordAccelerator(Protocol):
    """The interface of compiled code for records; one object serves a whole process."""

    def encoding(self, encoder: Any) -> Callable[[Sequence[Message]], Any] | None:
        """A function that encodes messages like ``encoder``; ``None`` if unsupported.

        :param encoder: an ``Encoder``
        :returns: a function that returns an ``EncodedBatch``
        """

    def read_run(
        self, view: memoryview, base_offset: int, *, verify: bool, sealed: bool, max_records: int
    ) -> memoryview | None:
        """The columns of the records that :func:`lakelog_format.codec.run.decode_run` finds.

        Columns follow one another, in the machine's byte order, with one number per record.

        ``int64``: start in ``view``, queue offset, physical offset, born time, store time, prepared
        transaction offset, position of the store time, position and length of body, topic and
        properties.

        ``int32``: size, magic, body checksum, queue id, flag, system flags, reconsume times.
        """

    def message(
        self, view: memoryview, at: int, offset: int | None, *, verify: bool
    ) -> StoredMessage | None:
        """As :func:`lakelog_format.codec.decode`; ``None`` if the record is not whole.

        :param at: start of the record in ``view``, in bytes
        :param offset: physical offset that the record must state; ``None`` accepts any
        """

    def messages(
        self,
        view: memoryview,
        starts: NDArray[np.int64],
        sizes: NDArray[np.int32],
        offsets: NDArray[np.int64] | None,
        *,
        verify: bool,
    ) -> list[StoredMessage] | None:
        """The messages of records with given starts in ``view``, sizes and offsets.

        ``None`` if any record is not whole, or is not the expected one.
        """


_current: RecordAccelerator | None = None


def current() -> RecordAccelerator | None:
    """The accelerator of this process."""
    return _current


def use(accelerator: RecordAccelerator | None) -> None:
    """Set the result of :func:`current`."""
    global _current  # noqa: PLW0603  # one per process: pure functions have no store to hold it
    _current = accelerator
