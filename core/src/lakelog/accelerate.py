"""The interface to compiled code for work that a store does for every message.

The Python code is the specification, and works without compiled code. A compiled call returns the
same result, or ``None`` without side effects. The caller then uses the Python path. So errors are
defined once, and no file or result depends on the accelerator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, runtime_checkable

from lakelog.lazy import np

if TYPE_CHECKING:
    from mmap import mmap
    from types import ModuleType

    from numpy.typing import NDArray

    from lakelog.message import Message, StoredMessage

    Longs: TypeAlias = NDArray[np.int64] | memoryview

PlainRecords: TypeAlias = "tuple[int, int, int, int, list[tuple[str, int, int, int, int, int]]]"
"""A summary of consecutive records: their end offset and number; the store times of the first and
the last one, in ms since 1970; and a row per queue. A row has topic, queue id, number of records,
queue offset of the first record, its start, and the end of the last record; both are offsets of the
log in bytes.
"""

_current: Accelerator | None = None


def current() -> Accelerator | None:
    """The accelerator of this process."""
    return _current


def use(accelerator: Accelerator | None) -> None:
    """Set the result of :func:`current`."""
    global _current  # noqa: PLW0603  # one per process: pure functions have no store to hold it
    _current = accelerator


SEAM: Final = 15
"""Interface version, raised with each change; an accelerator for another version is not used."""


@runtime_checkable
class Accelerator(Protocol):
    """The interface of compiled code; one object serves a whole process.

    A protocol, because lakelog-native is a hook's implementation, which another one can replace,
    and because tests replace single methods of it.

    It can be pickled, for processes that each read part of a log.

    :ivar seam: the :data:`SEAM` that it was built for
    """

    seam: int

    def encoding(self, encoder: Any) -> Callable[[Sequence[Message]], Any] | None:
        """A function that encodes messages like ``encoder``; ``None`` if unsupported.

        :param encoder: an ``Encoder``
        :returns: a function that returns an ``EncodedBatch``
        """

    def read_run(
        self, view: memoryview, base_offset: int, *, verify: bool, sealed: bool, max_records: int
    ) -> memoryview | None:
        """The columns of the records that :func:`lakelog.format.record_batch.decode_run` finds.

        Columns follow one another, in the machine's byte order, with one number per record.

        ``int64``: start in ``view``, queue offset, physical offset, born time, store time, prepared
        transaction offset, position of the store time, position and length of body, topic and
        properties.

        ``int32``: size, magic, body checksum, queue id, flag, system flags, reconsume times.
        """

    def message(
        self, view: memoryview, at: int, offset: int | None, *, verify: bool
    ) -> StoredMessage | None:
        """As :func:`lakelog.format.record`; ``None`` if the record is not whole.

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

    def append_lock(
        self, descriptor: int, byte: int, memory: memoryview, layout: ModuleType
    ) -> Any:
        """The lock of the append section, an ``AppendLock``; see ``processes.append_section``.

        :param descriptor: of the open file ``lock``
        :param byte: position in that file of the byte that a process without compiled code locks
        :param memory: the shared page; ``layout`` is the module with the positions of its words
        """

    def waiters(self, timeout_s: float, joined: Callable[[int], object]) -> Any:
        """A queue of threads whose puts wait for a sync; they sleep in it, and wake one by one.

        Of a put that ends at an offset, ``wait(end_offset)`` returns the status, or raises the
        error; ``None`` unless the queue is crowded (``set_crowded``), and in the two threads of
        ``set_own(flusher, watcher)``, which answer. ``answer(flushed, status)`` answers the puts
        that end at or before ``flushed``, and begins to wake their threads;
        ``answer_late(status)`` those that have timed out; both return their number.
        ``answer_all(make)`` answers all, each with what ``make`` returns. ``wake_all`` wakes all
        threads with an answer, ``oversee`` waits until they are awake. ``is_waiting`` says whether
        any put waits, ``seconds_left`` when the first one times out.

        :param timeout_s: the longest wait
        :param joined: called by a thread with the end of its put, before it sleeps
        """

    def settle(
        self, futures: Iterable[Any], finished: str, awaited: list[Any], called: list[Any]
    ) -> Iterable[Any]:
        """Settle futures as :func:`lakelog.log.put_future.settle`; return those left to Python.

        :param finished: the new state of the settled futures
        :param awaited: receives the futures of event loops that wait for them
        :param called: receives the settled futures that have callbacks
        """

    def deliveries(
        self,
        kind: type[Any],
        rows: list[Any],
        places: list[int],
        number: int,
        begin: int,
        end: int,
        taken_ms: int,
        visible_ms: int,
    ) -> list[Any]:
        """As ``Reserved.deliveries`` of ``lakelog_queues.groups.read_ahead``.

        :param kind: the class ``Delivery``
        :param begin: index of the first row, and ``end`` that behind the last one
        """

    def bits_of(
        self, handles: list[Any], reserved: dict[int, tuple[int, int, int]]
    ) -> list[tuple[int, int]] | None:
        """As :func:`lakelog_queues.groups.leases.bits_of`."""

    def putting(self, encoder: Any, log: Any) -> Any:
        """An object that appends to ``log`` without waiting for the flush strategy.

        ``put(message)`` and ``append(batch)`` do so, the latter as ``CommitLog.append``.
        ``bound(topic, tags, queue_id)`` returns a function that appends a message from its body and
        keys, or ``None`` if unsupported. A call for one message returns its result, or ``None``
        without effect. It returns a queue id if it chose the queue and appended nothing.

        :param log: a ``CommitLog``, whose public attributes are used
        :returns: ``None`` if unsupported
        """

    def lookups(self, parts: Any) -> Any:
        """An object that looks up messages for ``parts``; ``None`` if unsupported.

        :param parts: a ``LookupParts`` of lakelog-queues
        :returns: a ``Lookups`` of lakelog-queues
        """

    def plain_records(
        self, descriptor: int, start: int, length: int, *, sealed: bool
    ) -> PlainRecords | None:
        """The sound records at the start of a segment's file, up to the first that is not plain.

        A record is not plain if it is an inner batch, feeds light queues, or has a queue offset
        that does not follow that of its queue's last record. ``None`` if the first is not plain.

        :param descriptor: of the segment's file
        :param start: offset of the segment in the log; ``length`` is its length; both in bytes
        :param sealed: see :meth:`read_run`
        """

    def sound_records(
        self,
        view: memoryview,
        starts: NDArray[np.int64],
        offsets: NDArray[np.int64],
        sizes: NDArray[np.int32],
        *,
        verify: bool,
        pack_bodies: bool,
    ) -> tuple[bytes, memoryview, tuple[memoryview, memoryview] | None] | None:
        """The result of ``lakelog_queues.finding.records.sound_records``.

        :param pack_bodies: whether bodies are copied too; during the check they are in the
            processor's cache
        :returns: one byte per record, 1 if it is whole; the columns of the whole records, in the
            format of :meth:`read_run`; and ``packed_bodies`` of their ``RecordBatch``
        """

    def queue_units(
        self, view: memoryview, starts: Longs
    ) -> tuple[memoryview, memoryview, list[tuple[str, int, int, int | None]]] | None:
        """The result of :func:`lakelog_queues.dispatching.grouping.queue_groups`.

        :returns: ``int64`` index of each record, grouped by queue; its unit in file format; and for
            each queue its topic, queue id, number of records, and first queue offset
        """

    def keys(self, view: memoryview, starts: Longs) -> tuple[bytes, bytes] | None:
        """The keys of records, as a RocketMQ index holds them.

        :returns: ``int64``, index of the record of each key; ``int32``, hash of each key
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
        starts: Longs,
    ) -> tuple[memoryview, memoryview, int, tuple[int, int], int] | None:
        """Build the entries of the records' keys for a hash-index file; changes nothing.

        :param file: the map of the file; ``slots`` is its number of slots
        :param room: largest number of entries; the first one gets number ``first``
        :param begin_ms: the begin time in the file's header, in ms since 1970
        :param base_offset: physical offset of the first byte of ``view``
        :returns: the entries; the argument of :meth:`set_slots`; how many of these slots are empty;
            the indices of the first and the last record with keys; the number of keys of the latter
        """

    def set_slots(self, file: mmap, slots: int, heads: memoryview) -> None:
        """Point the file's slots to the entries, which must be written already."""

    def follow_entries(
        self, entries: NDArray[np.uint8], first: int, last_offset: int, heads: NDArray[np.int32]
    ) -> tuple[int, int] | None:
        """Follow the entries of a hash-index file; ``None``, without effect, if one is not sound.

        :param entries: as in the file; ``first`` is the number of the first one
        :param last_offset: the physical offset in the preceding entry
        :param heads: by slot, the number of its newest entry; updated with these entries
        :returns: how many slots had no entry before; the physical offset in the last one
        """
