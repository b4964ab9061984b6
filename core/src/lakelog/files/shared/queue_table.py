"""The table of queue ends in shared memory: the queue offset that the next message takes.

A file that all processes map, read and changed inside of the append section only. All numbers are
in the machine's byte order::

    byte  0  u64  magic and version
    byte  8  u64  generation: counted up by each file that takes the place of another
    byte 16  u64  slots: how many, a power of two
    byte 24  u64  end of the entries, in words of 8 bytes from the start of the file
    byte 32  u64  how many entries there are
    byte 40  u64  how many of them are light queues
    byte 64  u64  per slot: word where an entry starts; 0 is a free slot
    ...           entries, one behind the other, each a multiple of 8 bytes:
                  u64 next queue offset | u32 hash | i32 queue id | u32 length | topic in UTF-8

Hash: CRC-32 of the topic, then of the queue id as 4 bytes; the first slot is the hash modulo the
slots, and the next one is tried while another key is there (Knuth, "Sorting and Searching", 6.4,
algorithm L). An entry counts once its slot says where it is, so that a process that dies in between
leaves nothing. A table that is full is written anew, larger, beside the old one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Final
from zlib import crc32

from lakelog.files.filesystem import FileSystem
from lakelog.files.pages.shared_page import TABLE_GENERATION
from lakelog.format.layout import OWN_DIR
from lakelog.format.properties import LIGHT_QUEUE_PREFIX
from lakelog.format.queue_offsets import Queue, QueueOffsets

MAGIC: Final = 0x6C6B_6C71_7462_0001
"""The bytes ``lklqtb`` and the version, as a number."""
FIRST_SLOTS: Final = 1024
_GROWTH: Final = 4
_GENERATION, _SLOTS, _END, _COUNT, _LIGHT = 1, 2, 3, 4, 5
_HEAD_WORDS: Final = 8
_BYTES_PER_SLOT: Final = 8 + 32
"""Room for entries: half of the slots are used, with 64 bytes for each."""
_ENTRY: Final = Struct("=QIiI")
_ID: Final = Struct("=i")
_AS_IT_IS: Final = "surrogatepass"
"""Of topics that are no UTF-8."""


class QueueTable(QueueOffsets):
    """One process's view of the table.

    :ivar generation: of the file that is mapped; where the page shows another, see :meth:`reopen`
    :ivar wanted: queues that were asked for, and are not there; see :meth:`make_room`
    """

    __slots__ = ("_bytes", "_files", "_known", "_path", "_words", "generation", "wanted")

    def __init__(self, files: FileSystem, path: Path, generation: int) -> None:
        """Map the table of the store directory ``path``."""
        self.wanted: set[Queue] = set()
        self._files = files
        self._path = path
        self.reopen(generation)

    @classmethod
    def make(
        cls, files: FileSystem, path: Path, generation: int, start: Mapping[Queue, int]
    ) -> QueueTable:
        """Write a table with the queues of ``start``; it counts once the page shows its generation.

        Raises ``OSError``.
        """
        slots = _slots(FIRST_SLOTS, 2 * len(start), _words_of_all(topic for topic, _ in start))
        _write(files, path, generation, slots, start.items())
        return cls(files, path, generation)

    def reopen(self, generation: int) -> None:
        """Map the file of ``generation``; what was known of the former one is forgotten."""
        file = self._files.open(table_path(self._path, generation), write=True)
        try:
            self._bytes = memoryview(file.map(file.size(), writable=True))
        finally:
            file.close()
        self._words = self._bytes.cast("Q")
        self._known: dict[Queue, int] = {}
        self.generation = generation

    # --- QueueOffsets ---

    def next(self, queue: Queue) -> int:
        """The offset that the next message of ``queue`` takes."""
        at = self._known.get(queue) or self._find(queue)
        if at:
            return self._words[at]
        self.wanted.add(queue)
        return 0

    def advance(self, queue: Queue, count: int) -> None:
        """Count ``count`` messages more in ``queue``, for which there is room."""
        at = self._known.get(queue) or self._find(queue) or self._add(queue)
        self._words[at] += count

    def raise_to(self, queue: Queue, next_offset: int) -> None:
        """Let ``queue`` end at ``next_offset`` at least: as often as somebody finds its record."""
        at = self._known.get(queue) or self._find(queue) or self._add(queue)
        self._words[at] = max(self._words[at], next_offset)

    def word_of(self, queue: Queue) -> int:
        """The word of :attr:`memory` where ``queue`` ends; 0 where it is not in the table."""
        return self._known.get(queue) or self._find(queue)

    @property
    def memory(self) -> memoryview:
        """The whole table; of the file of :attr:`generation`."""
        return self._bytes

    def new_light_queues(self, topics: Iterable[str]) -> int:
        """How many light queues there would be with those of ``topics`` added."""
        return self._words[_LIGHT] + sum(not self._find((topic, 0)) for topic in topics)

    def snapshot(self) -> dict[Queue, int]:
        """A copy of the whole table."""
        return dict(self._entries())

    # --- room ---

    def make_room(self, page: memoryview[int]) -> None:
        """See to it that all that is wanted fits, and let the others see it if the table grows.

        :param page: the words of the shared page

        Raises ``OSError`` for want of room, and then nothing has changed.
        """
        topics, former = [topic for topic, _ in self.wanted], self.generation
        if not self.has_room(topics):
            page[TABLE_GENERATION] = self.grown(topics).generation
            self.reopen(page[TABLE_GENERATION])
            remove_table(self._files, self._path, former)
        self.wanted.clear()

    def has_room(self, topics: Iterable[str]) -> bool:
        """Whether new queues of these topics fit, whatever of them is there."""
        topics, words = list(topics), self._words
        return (
            words[_END] + _words_of_all(topics) <= len(words)
            and 2 * (words[_COUNT] + len(topics)) <= words[_SLOTS]
        )

    def grown(self, topics: Iterable[str]) -> QueueTable:
        """A larger table beside this one, with the same queues and room for ``topics``, too.

        Raises ``OSError``; this one goes on then.
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
        """The word where its entry starts; 0 where there is none."""
        topic, number = queue
        key = _key(topic)
        wanted, words = _hash(key, number), self._words
        mask = words[_SLOTS] - 1
        slot = wanted & mask
        while at := words[_HEAD_WORDS + slot]:
            _, found, queue_id, length = _ENTRY.unpack_from(self._bytes, 8 * at)
            start = 8 * at + _ENTRY.size
            if (found, queue_id, length) == (wanted, number, len(key)) and self._bytes[
                start : start + length
            ] == key:
                self._known[queue] = at
                return int(at)
            slot = (slot + 1) & mask
        return 0

    def _add(self, queue: Queue) -> int:
        at = _add(self._bytes, self._words, queue, 0)
        self._known[queue] = at
        return at

    def _entries(self) -> Iterator[tuple[Queue, int]]:
        for slot in range(_HEAD_WORDS, _HEAD_WORDS + self._words[_SLOTS]):
            if at := self._words[slot]:
                next_offset, _, queue_id, length = _ENTRY.unpack_from(self._bytes, 8 * at)
                start = 8 * at + _ENTRY.size
                yield (
                    (str(self._bytes[start : start + length], "utf-8", _AS_IT_IS), queue_id),
                    next_offset,
                )


def table_path(path: Path, generation: int) -> Path:
    """Where the table of the store directory ``path`` stands."""
    return path / OWN_DIR / f"queues.{generation}"


def is_table(name: str) -> bool:
    """Whether a file of that name is a table; ``queues.json`` is none."""
    kind, _, number = name.partition(".")
    return kind == "queues" and number.isdigit()


def remove_tables(files: FileSystem, path: Path) -> None:
    """Delete every table of the store directory ``path``, of processes that died, too."""
    for name, _ in files.list(path / OWN_DIR):
        if is_table(name):
            with suppress(FileNotFoundError):
                files.unlink(path / OWN_DIR / name)


def remove_table(files: FileSystem, path: Path, generation: int) -> None:
    """Delete a table that another one has taken the place of; one that is gone is no error."""
    with suppress(FileNotFoundError):
        files.unlink(table_path(path, generation))


def _hash(key: bytes, queue_id: int) -> int:
    return crc32(_ID.pack(queue_id), crc32(key))


def _words_of(key_bytes: int) -> int:
    return -(-(_ENTRY.size + key_bytes) // 8)


def _words_of_all(topics: Iterable[str]) -> int:
    return sum(_words_of(len(_key(topic))) for topic in topics)


def _slots(least: int, count: int, entry_words: int) -> int:
    """How many slots there must be, for so many queues with entries of so many words in all."""
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
    file = files.open(table_path(path, generation), write=True, create=True)
    try:
        length = _file_bytes(slots)
        file.allocate(length)
        data = memoryview(file.map(length, writable=True))
        words = data.cast("Q")
        words[_GENERATION], words[_SLOTS] = generation, slots
        words[_END] = _HEAD_WORDS + slots
        for queue, next_offset in queues:
            _add(data, words, queue, next_offset)
        words[0] = MAGIC
    except BaseException:  # Ctrl-C too: a partial file would fill the disk
        remove_table(files, path, generation)
        raise
    finally:
        file.close()


def _add(data: memoryview, words: memoryview[int], queue: Queue, next_offset: int) -> int:
    """Add an entry, for which there is room; the word where it starts."""
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
