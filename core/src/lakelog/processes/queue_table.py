"""The table of queue ends in shared memory: the queue offset of the next message of each queue.

A file mapped by all processes, and accessed only inside the append section. All numbers are
in the machine's byte order::

    byte  0  u64  magic and version
    byte  8  u64  generation: incremented by each file that replaces another
    byte 16  u64  number of slots, a power of two
    byte 24  u64  end of the entries, in words of 8 bytes from the start of the file
    byte 32  u64  number of entries
    byte 40  u64  number of light queues among them
    byte 64  u64  per slot: word where an entry starts; 0 is a free slot
    ...           entries, one behind the other, each a multiple of 8 bytes:
                  u64 next queue offset | u32 hash | i32 queue id | u32 length | topic in UTF-8

Hash: CRC-32 of the topic, then of the queue id as 4 bytes. The first slot is the hash modulo the
slots; the next one is tried while another key is there (Knuth, "Sorting and Searching", 6.4,
algorithm L). An entry is valid once a slot points to it, so a process that dies before that
leaves no trace. A full table is replaced by a new, larger file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from struct import Struct
from typing import Final
from zlib import crc32

from lakelog.errors import StoreError
from lakelog.files.filesystem import FileMap, FileSystem
from lakelog.format.layout import OWN_DIR
from lakelog.format.properties import LIGHT_QUEUE_PREFIX
from lakelog.format.queue_offsets import Queue, QueueOffsets
from lakelog.processes.shared_page import TABLE_GENERATION, make_mapped

MAGIC: Final = 0x6C6B_6C71_7462_0001
"""The bytes ``lklqtb`` and the version, as a number."""
FIRST_SLOTS: Final = 1024
_GROWTH: Final = 4
_GENERATION, _SLOTS, _END, _COUNT, _LIGHT = 1, 2, 3, 4, 5
_HEAD_WORDS: Final = 8
_BYTES_PER_SLOT: Final = 8 + 32
"""Bytes per slot: half of the slots are used, with 64 bytes for each entry."""
_ENTRY: Final = Struct("=QIiI")
_ID: Final = Struct("=i")
_AS_IT_IS: Final = "surrogatepass"
"""The error handler for topics that are not valid UTF-8."""


class QueueTable(QueueOffsets):
    """The table as mapped by one process.

    :ivar generation: of the mapped file; if the shared page has another one, call :meth:`reopen`
    :ivar memory: that file, as a whole
    :ivar wanted: requested queues that are missing; see :meth:`make_room`
    """

    __slots__ = ("_files", "_known", "_map", "_path", "_words", "generation", "memory", "wanted")

    def __init__(self, files: FileSystem, path: Path, generation: int) -> None:
        """Map the table of the store directory ``path``."""
        self.wanted: set[Queue] = set()
        self._files = files
        self._path = path
        self._map: FileMap | None = None
        self.reopen(generation)

    @classmethod
    def make(
        cls, files: FileSystem, path: Path, generation: int, start: Mapping[Queue, int]
    ) -> QueueTable:
        """Write a table with the queues of ``start``; valid once the page has its generation.

        Raises ``OSError``.
        """
        slots = _slots(FIRST_SLOTS, 2 * len(start), _words_of_all(topic for topic, _ in start))
        _write(files, path, generation, slots, start.items())
        return cls(files, path, generation)

    @classmethod
    def join(cls, files: FileSystem, path: Path, page: memoryview[int]) -> QueueTable:
        """Map the present table; another process may replace it meanwhile.

        :param page: the words of the shared page

        Raises :class:`~lakelog.errors.StoreError` if it was removed.
        """
        while True:
            generation = page[TABLE_GENERATION]
            try:
                return cls(files, path, generation)
            except FileNotFoundError:
                if page[TABLE_GENERATION] == generation:
                    raise StoreError(
                        "the table of queues that the processes of this store share is gone; close "
                        "the store in all of them, then open it again",
                        path=table_path(path, generation),
                    ) from None

    def reopen(self, generation: int) -> None:
        """Map the file of ``generation``, and drop cached entries of the former one.

        Raises ``OSError``.
        """
        former = self._map
        with closing(self._files.open(table_path(self._path, generation), write=True)) as file:
            self._map = file.map(file.size(), writable=True)
        self.memory = memoryview(self._map)
        self._words = self.memory.cast("Q")
        if former is not None:  # compiled code may have a view of it
            former.unmap()
        self._known: dict[Queue, int] = {}
        self.generation = generation

    # --- QueueOffsets ---

    def next(self, queue: Queue) -> int:
        """The offset that the next message of ``queue`` takes."""
        if at := self.word_of(queue):
            return self._words[at]
        self.wanted.add(queue)
        return 0

    def advance(self, queue: Queue, count: int) -> None:
        """Advance the end of ``queue``, which has an entry, by ``count`` messages."""
        at = self.word_of(queue) or self._add(queue)
        self._words[at] += count

    def raise_to(self, queue: Queue, next_offset: int) -> None:
        """Raise the end of ``queue`` to at least ``next_offset``; idempotent."""
        at = self.word_of(queue) or self._add(queue)
        self._words[at] = max(self._words[at], next_offset)

    def word_of(self, queue: Queue) -> int:
        """The word of :attr:`memory` with the end of ``queue``; 0 if it is not in the table."""
        return self._known.get(queue) or self._find(queue)

    def new_light_queues(self, topics: Iterable[str]) -> int:
        """The number of light queues after adding those of ``topics``."""
        return self._words[_LIGHT] + sum(not self._find((topic, 0)) for topic in topics)

    def snapshot(self) -> dict[Queue, int]:
        """A copy of the whole table."""
        return dict(self._entries())

    # --- room ---

    def make_room(self, page: memoryview[int]) -> None:
        """Make room for the wanted queues; if the table grows, publish its new generation.

        :param page: the words of the shared page

        Raises ``OSError`` if it cannot be allocated, and then nothing has changed.
        """
        topics, former = [topic for topic, _ in self.wanted], self.generation
        if not self.has_room(topics):
            page[TABLE_GENERATION] = self.grown(topics).generation
            self.reopen(page[TABLE_GENERATION])
            remove_table(self._files, self._path, former)
        self.wanted.clear()

    def has_room(self, topics: Iterable[str]) -> bool:
        """Whether one new queue for each of these topics fits."""
        topics, words = list(topics), self._words
        return (
            words[_END] + _words_of_all(topics) <= len(words)
            and 2 * (words[_COUNT] + len(topics)) <= words[_SLOTS]
        )

    def grown(self, topics: Iterable[str]) -> QueueTable:
        """Write a larger table with the same queues and room for ``topics``.

        Raises ``OSError``; the present table stays in use then.
        """
        topics, words = list(topics), self._words
        slots = _slots(
            words[_SLOTS] * _GROWTH,
            words[_COUNT] + len(topics),
            words[_END] + _words_of_all(topics),
        )
        _write(self._files, self._path, self.generation + 1, slots, self._entries())
        return QueueTable(self._files, self._path, self.generation + 1)

    # --- entries ---

    def _find(self, queue: Queue) -> int:
        """The word where the entry of ``queue`` starts; 0 if there is none."""
        topic, number = queue
        key = _key(topic)
        wanted, words = _hash(key, number), self._words
        mask = words[_SLOTS] - 1
        slot = wanted & mask
        while at := words[_HEAD_WORDS + slot]:
            _, found, queue_id, length = _ENTRY.unpack_from(self.memory, 8 * at)
            start = 8 * at + _ENTRY.size
            if (found, queue_id, length) == (wanted, number, len(key)) and self.memory[
                start : start + length
            ] == key:
                self._known[queue] = at
                return int(at)
            slot = (slot + 1) & mask
        return 0

    def _add(self, queue: Queue) -> int:
        at = _add(self.memory, self._words, queue, 0)
        self._known[queue] = at
        return at

    def _entries(self) -> Iterator[tuple[Queue, int]]:
        for slot in range(_HEAD_WORDS, _HEAD_WORDS + self._words[_SLOTS]):
            if at := self._words[slot]:
                next_offset, _, queue_id, length = _ENTRY.unpack_from(self.memory, 8 * at)
                start = 8 * at + _ENTRY.size
                yield (
                    (str(self.memory[start : start + length], "utf-8", _AS_IT_IS), queue_id),
                    next_offset,
                )


def table_path(path: Path, generation: int) -> Path:
    """The path of the table of this generation in the store directory ``path``."""
    return path / OWN_DIR / f"queues.{generation}"


def is_table(name: str) -> bool:
    """Whether a file name is that of a table; ``queues.json`` is not."""
    kind, _, number = name.partition(".")
    return kind == "queues" and number.isdigit()


def remove_tables(files: FileSystem, path: Path) -> None:
    """Delete all tables of the store directory ``path``, including those of dead processes."""
    for name, _ in files.list(path / OWN_DIR):
        if is_table(name):
            with suppress(FileNotFoundError):
                files.unlink(path / OWN_DIR / name)


def remove_table(files: FileSystem, path: Path, generation: int) -> None:
    """Delete a replaced table; a missing one is no error."""
    with suppress(FileNotFoundError):
        files.unlink(table_path(path, generation))


def _hash(key: bytes, queue_id: int) -> int:
    return crc32(_ID.pack(queue_id), crc32(key))


def _words_of(key_bytes: int) -> int:
    return -(-(_ENTRY.size + key_bytes) // 8)


def _words_of_all(topics: Iterable[str]) -> int:
    return sum(_words_of(len(_key(topic))) for topic in topics)


def _slots(least: int, count: int, entry_words: int) -> int:
    """The number of slots needed for ``count`` queues with ``entry_words`` words of entries."""
    slots = least
    while slots < 2 * count or _file_bytes(slots) < 8 * (_HEAD_WORDS + slots + entry_words):
        slots *= _GROWTH
    return slots


def _key(topic: str) -> bytes:
    return topic.encode("utf-8", _AS_IT_IS)


def _file_bytes(slots: int) -> int:
    return 8 * _HEAD_WORDS + _BYTES_PER_SLOT * slots


def _write(
    files: FileSystem,
    path: Path,
    generation: int,
    slots: int,
    queues: Iterable[tuple[Queue, int]],
) -> None:
    remove_table(files, path, generation)  # a process may have died while it wrote one
    try:
        data = make_mapped(files, table_path(path, generation), _file_bytes(slots))
        words = data.cast("Q")
        words[_GENERATION], words[_SLOTS] = generation, slots
        words[_END] = _HEAD_WORDS + slots
        for queue, next_offset in queues:
            _add(data, words, queue, next_offset)
        words[0] = MAGIC
    except BaseException:  # Ctrl-C too: a partial file would fill the disk
        remove_table(files, path, generation)
        raise


def _add(data: memoryview, words: memoryview[int], queue: Queue, next_offset: int) -> int:
    """Add an entry, for which there must be room; return the word where it starts."""
    topic, number = queue
    key = _key(topic)
    wanted, at = _hash(key, number), words[_END]
    start = 8 * at + _ENTRY.size
    _ENTRY.pack_into(data, 8 * at, next_offset, wanted, number, len(key))
    data[start : start + len(key)] = key
    words[_END] = at + _words_of(len(key))
    mask = words[_SLOTS] - 1
    slot = wanted & mask
    while words[_HEAD_WORDS + slot]:
        slot = (slot + 1) & mask
    words[_HEAD_WORDS + slot] = at
    words[_COUNT] += 1
    words[_LIGHT] += topic.startswith(LIGHT_QUEUE_PREFIX)
    return at
