"""The seam to compiled code that does what a store does for every message.

Python is the specification, and does everything without it. A compiled call answers as the Python
one would, or returns ``None`` and has done nothing: the caller then goes its plain way. So no error
is written twice, and no file or result depends on whether an accelerator is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

if TYPE_CHECKING:
    from mmap import mmap
    from types import ModuleType

    import numpy as np
    from numpy.typing import NDArray

    from lakelog.files.shared.append_lock import SectionLock
    from lakelog.message import Message, StoredMessage
    from lakelog.reading.results import GetResult
    from lakelog.results import PutResult

SEAM: Final = 5
"""Counted up with each change of what is called here; an accelerator of another one is not used."""


@runtime_checkable
class Accelerator(Protocol):
    """What compiled code offers; one object serves a whole process.

    It can be pickled, for processes that read a part of a log each.

    :ivar seam: the :data:`SEAM` that it was built for
    """

    seam: int

    def encoding(self, encoder: Any) -> Callable[[Sequence[Message]], Any] | None:
        """What encodes messages as ``encoder``, an ``Encoder``; ``None`` where it never could.

        What is called gives an ``EncodedBatch``.
        """

    def append_lock(
        self, descriptor: int, byte: int, memory: memoryview, layout: ModuleType
    ) -> SectionLock:
        """The lock of the append section; see :mod:`lakelog.files.shared.append_lock`.

        :param descriptor: of the open file ``lock``
        :param byte: what a process without compiled code locks
        :param memory: the shared page; ``layout`` is the module that says where its words stand
        """

    def putting(self, encoder: Any, log: Any) -> Putting | None:
        """What appends one message to ``log``, a ``LogParts``; ``None`` where it never could."""

    def lookups(self, parts: Any) -> Lookups | None:
        """What looks up messages by ``parts``, ``LookupParts``; ``None`` where it never could."""

    def read_run(
        self, view: memoryview, base_offset: int, *, verify: bool, sealed: bool, max_records: int
    ) -> memoryview | None:
        """The columns of the records that :func:`lakelog.codec.run.decode_run` finds.

        One column behind the other, in the machine's byte order, each with one number per record:
        ``int64`` for start in ``view``, queue offset, physical offset, born and store time,
        prepared transaction offset, position of the store time, position and length of body,
        topic and properties; then ``int32`` for size, magic, body's checksum, queue id, flag,
        system flags, reconsume times.
        """

    def sound_records(
        self,
        view: memoryview,
        starts: NDArray[np.int64],
        offsets: NDArray[np.int64],
        sizes: NDArray[np.int32],
        *,
        verify: bool,
    ) -> tuple[bytes, memoryview] | None:
        """What :func:`lakelog.codec.run.sound_records` finds.

        :returns: for each record a byte, 1 where it is whole; and the columns of those that are,
            as :meth:`read_run` gives them
        """

    def message(
        self, view: memoryview, at: int, offset: int | None, *, verify: bool
    ) -> StoredMessage | None:
        """What :func:`lakelog.codec.decode` finds; ``None`` where the record is not whole."""

    def messages(
        self,
        view: memoryview,
        starts: NDArray[np.int64],
        sizes: NDArray[np.int32],
        offsets: NDArray[np.int64] | None,
        *,
        verify: bool,
    ) -> list[StoredMessage] | None:
        """The messages of records whose starts in ``view``, sizes and offsets are known.

        ``None`` where one of them is not whole, or not the one that is meant.
        """

    def queue_units(
        self, view: memoryview, starts: NDArray[np.int64]
    ) -> tuple[memoryview, memoryview, list[tuple[str, int, int, int | None]]] | None:
        """What :func:`lakelog.codec.queue_groups.queue_groups` finds.

        :returns: ``int64``, the number of each record, by queue; its unit as in a file; and topic,
            queue id, number of records, and first queue offset of each queue
        """

    def keys(self, view: memoryview, starts: NDArray[np.int64]) -> tuple[bytes, bytes] | None:
        """The keys of records, as an index of RocketMQ has them.

        :returns: ``int64``, the number of the record of each key; ``int32``, its hash
        """

    def index_entries(
        self,
        file: mmap,
        slots: int,
        room: int,
        first: int,
        begin_ms: int,
        view: memoryview,
        base_offset: int,
        starts: NDArray[np.int64],
    ) -> tuple[memoryview, memoryview, int, tuple[int, int], int] | None:
        """The entries of keys of records, for a file of a hash index; changes nothing.

        :param room: how many there may be; the next one takes number ``first``
        :returns: the entries; what :meth:`set_slots` takes; how many of these slots are empty; the
            numbers of the first and the last record that have keys; how many keys the latter has
        """

    def set_slots(self, file: mmap, slots: int, heads: memoryview) -> None:
        """Let slots of that file lead to the entries, which are written."""


class Putting(Protocol):
    """Appends one message, and does not wait for what the flush strategy promises.

    Gives its result; ``None`` where nothing was done; or the number of the queue that was chosen,
    where nothing else was done.
    """

    def put(self, message: Message) -> PutResult | int | None:
        """Append ``message``."""

    def bound(
        self, topic: str, tags: str | None, queue_id: int | None
    ) -> Callable[[Any, Any], PutResult | int | None] | None:
        """What appends a message, from its body and keys; ``None`` where it never could."""


class Lookups(Protocol):
    """Looks up messages of an open store; each gives ``None`` where Python has to look.

    That may be at the arguments. They are given in their order, all of them.
    """

    def get(
        self, topic: Any, queue_id: Any, offset: Any, max_messages: Any, tag_filter: Any = None
    ) -> GetResult | None:
        """As ``QueueGetter.get``, with a ``TagFilter`` or ``None``."""

    def query(
        self, topic: Any, key: Any, since_ms: Any, until_ms: Any, max_messages: Any
    ) -> list[StoredMessage] | None:
        """As ``KeyQuery.query``."""

    def offset_by_time(
        self, topic: Any, queue_id: Any, timestamp_ms: Any, boundary: Any
    ) -> int | None:
        """As ``TimeSearch.offset_by_time``."""


class NoLookups:
    """Leaves everything to Python."""

    def get(self, _topic: Any, _queue: Any, _offset: Any, _most: Any, _tags: Any = None) -> None:
        """Leave it."""

    def query(self, _topic: Any, _key: Any, _since: Any, _until: Any, _max_messages: Any) -> None:
        """Leave it."""

    def offset_by_time(self, _topic: Any, _queue_id: Any, _time: Any, _boundary: Any) -> None:
        """Leave it."""


NO_LOOKUPS: Final = NoLookups()


_current: Accelerator | None = None


def current() -> Accelerator | None:
    """The accelerator of this process, for functions that belong to no store."""
    return _current


def use(accelerator: Accelerator | None) -> None:
    """Let :func:`current` give it from now on."""
    global _current  # noqa: PLW0603  # one per process: pure functions have no store to ask
    _current = accelerator
