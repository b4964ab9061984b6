"""One index file: its header, look-ups by key, checks, and which files are valid after a stop.

A file is read by ``pread``, as another process may cut it. Entries store whole seconds since the
file's first record, rounded down, so a record may appear up to 999 ms too early. The time window of
a look-up is widened by that; the store, which reads the exact times, drops the surplus. The first
entry of a file counts its seconds from the previous file; its exact time is in the header.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from heapq import merge
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any, Final

import attrs

from lakelog.accelerate import current
from lakelog.errors import CorruptIndex
from lakelog.files.filesystem import FileSystem, OpenedFile, unreadable
from lakelog.format.queue_offsets import Ints, Longs
from lakelog.hooks.dispatching import Problem
from lakelog.lazy import cached_property, np
from lakelog_hash_index.shape import ENTRY, HEADER, SLOT, IndexShape, is_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

ENTRY_DTYPE: Final = [("hash", ">i4"), ("offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")]
"""An entry of an index file, 20 bytes."""
BROKEN: Final = "the index file breaks a rule"
_TRIES: Final = 3
_TRY_AGAIN_SECONDS: Final = 0.001
_ROUNDED_MS: Final = 999
_CHUNK: Final = 1 << 18
"""Number of entries that are checked at once."""
_AT_END_OFFSET: Final = 24
_AT_BEGIN_OFFSET: Final = 16
_AT_USED_SLOTS: Final = 32


@attrs.frozen
class Header:
    """The first 40 bytes of a file.

    :ivar begin_timestamp_ms: store time of the first entry's record
    :ivar end_timestamp_ms: store time of the last entry's record
    :ivar begin_offset: physical offset of the first entry's record
    :ivar end_offset: physical offset of the last entry's record
    :ivar used_slots: slots that are not empty
    :ivar count: the number that the next entry will take, at least 1

    Times and offsets of a file without entries are the ends of the file before it.
    """

    begin_timestamp_ms: int = 0
    end_timestamp_ms: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    used_slots: int = 0
    count: int = 1

    @classmethod
    def unpack(cls, data: bytes | memoryview) -> Header:
        """Unpack from the start of a file; a count of 0 is read as 1, as by RocketMQ."""
        header = cls(*HEADER.unpack_from(data))
        return header if header.count else attrs.evolve(header, count=1)

    def pack(self) -> bytes:
        """Pack to 40 bytes."""
        return HEADER.pack(*attrs.astuple(self))

    @property
    def is_empty(self) -> bool:
        """Whether there are no entries."""
        return self.count <= 1

    def problems(self, shape: IndexShape) -> Iterator[str]:
        """Errors of the header alone."""
        if not 1 <= self.count <= shape.entries:
            yield f"indexCount is {self.count}, expected 1 to {shape.entries}"
        most = max(min(shape.slots, self.count - 1), 0)
        if not 0 <= self.used_slots <= most:
            yield f"hashSlotCount is {self.used_slots}, expected 0 to {most}"
        if not 0 <= self.begin_offset <= self.end_offset:
            yield f"it claims physical offsets from {self.begin_offset} to {self.end_offset}"


# --- look-ups ---


class IndexFile:
    """A file of the full length; opened on first use, and readable after it was deleted.

    Its methods raise :class:`~lakelog.errors.ReadFailed` if it cannot be opened or read, and
    :class:`~lakelog.errors.CorruptIndex` if it is shorter by now.

    :ivar own_map: see :class:`~lakelog.hooks.HashFile`
    """

    own_map: object = False

    def __init__(self, files: FileSystem, path: Path, shape: IndexShape) -> None:
        self.path = path
        self.shape = shape
        self._files = files
        self._sound = b"", Header()  # the latest that had no problem

    @cached_property
    def _opened(self) -> OpenedFile:
        return OpenedFile(self._files.open(self.path))

    def fileno(self) -> int:
        """The descriptor of the open file, for compiled code."""
        return self._opened.fileno()

    def close(self) -> None:
        """Close it; a later use opens it again."""
        self.own_map = False
        opened = vars(self).pop("_opened", None)
        if opened is not None:
            opened.close()

    def _read(self, position: int, length: int) -> bytes:
        try:
            found = self._opened.read(position, length)
        except OSError as error:
            raise unreadable(self.path, error) from error
        if len(found) < length:
            raise self.corrupt("the file was cut", position + len(found))
        return found

    def header(self) -> Header:
        """The present header."""
        return Header.unpack(self._read(0, HEADER.size))

    def settled_header(self) -> Header:
        """The header once its fields are consistent, as its owner writes them one by one.

        A damaged one is returned as it is, after some tries.
        """
        for _ in range(_TRIES):
            data, (known, header) = self._read(0, HEADER.size), self._sound
            if data == known:
                return header
            header = Header.unpack(data)
            if not any(header.problems(self.shape)):
                self._sound = data, header
                return header
            sleep(_TRY_AGAIN_SECONDS)
        return self.header()

    def problems(self, header: Header) -> Iterator[str]:
        """Errors of a header that was read from this file."""
        if header is not self._sound[1]:
            yield from header.problems(self.shape)

    def slot(self, slot: int) -> int:
        """The number of the newest entry of ``slot``."""
        return int(SLOT.unpack(self._read(self.shape.slot_at(slot), SLOT.size))[0])

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """``keyHash, phyOffset, timeDiffSeconds, previousEntry``."""
        found: tuple[int, int, int, int]
        found = ENTRY.unpack(self._read(self.shape.entry_at(number), ENTRY.size))
        return found

    def offset(self, number: int) -> int:
        """The physical offset in entry ``number``."""
        return self.entry(number)[1]

    def slots(self) -> NDArray[Any]:
        """All slots, ``>i4``."""
        return np.frombuffer(self._read(self.shape.slot_at(0), self.shape.slots * SLOT.size), ">i4")

    def entries(self, first: int, end: int) -> NDArray[Any]:
        """Entries from number ``first`` up to ``end``."""
        data = self._read(self.shape.entry_at(first), max(end - first, 0) * ENTRY.size)
        return np.frombuffer(data, ENTRY_DTYPE)

    def corrupt(self, what: str, at: int) -> CorruptIndex:
        """The error for damage at byte ``at``."""
        return CorruptIndex(
            f"{what} (at byte {at}); `lakelog rebuild --index` builds the index again from the log",
            path=self.path,
        )


def index_files(
    files: FileSystem, directory: Path, shape: IndexShape
) -> tuple[list[IndexFile], list[CorruptIndex]]:
    """The files of an index, oldest first, and an error for each of a wrong length.

    Empty files, which a crash left while creating one, and files with other names are skipped.
    """
    found, wrong = [], []
    for name, length in files.list(directory):
        if is_name(name) and length == shape.length:
            found.append(IndexFile(files, directory / name, shape))
        elif is_name(name) and length:
            text = (
                f"it has {length} bytes, but hash-index.slots={shape.slots} and "
                f"hash-index.entries={shape.entries} make {shape.length}; set them as they were "
                "when it was made, or run `lakelog rebuild --index`"
            )
            wrong.append(CorruptIndex(text, path=directory / name))
    return found, wrong


@attrs.frozen
class KeyQuestion:
    """A query: ``key_hash`` as in the index, and an inclusive window of store times in ms."""

    key_hash: int
    begin_ms: int
    end_ms: int

    def takes(self, first_ms: int, last_ms: int) -> bool:
        """Whether any time from ``first_ms`` to ``last_ms`` is in the window."""
        return first_ms <= self.end_ms and last_ms >= self.begin_ms


def newest_first(
    files: Iterable[IndexFile],
    others: Iterable[int],
    wanted: KeyQuestion,
    within: range,
    known_damage: Iterable[CorruptIndex] = (),
) -> Iterator[int]:
    """Offsets from ``files``, newest file first, and from ``others``, in descending order.

    Each offset once, if it is ``within`` the log. Damage ends the walk of its own file; the first
    error is raised at the end.
    """
    damage = list(known_damage)
    last = None
    found = _through(files, wanted, damage)
    for offset in merge(others, found, reverse=True) if others else found:
        if offset != last and offset in within:
            yield offset
        last = offset
    if damage:
        raise damage[0]


def _through(
    files: Iterable[IndexFile], wanted: KeyQuestion, damage: list[CorruptIndex]
) -> Iterator[int]:
    """Offsets in ``files``, one after the other; collects their errors in ``damage``."""
    for file in files:
        try:
            yield from walk(file, wanted)
        except CorruptIndex as error:
            damage.append(error)


def walk(file: IndexFile, wanted: KeyQuestion) -> Iterator[int]:
    """Offsets in one file; raises :class:`~lakelog.errors.CorruptIndex` at damage."""
    slot = wanted.key_hash % file.shape.slots
    number = file.slot(slot)
    header = file.settled_header()  # read after the slot, as the file may grow
    _check(file, header, slot, number)
    begin_ms, end_ms = header.begin_timestamp_ms, header.end_timestamp_ms
    if begin_ms <= end_ms and not wanted.takes(begin_ms, end_ms + _ROUNDED_MS):
        return
    before = number + 1
    while number:
        if not 0 < number < before:
            raise file.corrupt(f"entry {before} points to {number}", file.shape.entry_at(before))
        key_hash, offset, seconds, previous = file.entry(number)
        if key_hash < 0 or key_hash % file.shape.slots != slot or seconds < 0 or offset < 0:
            raise file.corrupt(
                f"entry {number} cannot be in slot {slot}", file.shape.entry_at(number)
            )
        if key_hash == wanted.key_hash and wanted.takes(*_times(header, number, seconds)):
            yield offset
        before, number = number, previous


def _times(header: Header, number: int, seconds: int) -> tuple[int, int]:
    """The earliest and latest store time that an entry can represent."""
    if number == 1:
        return header.begin_timestamp_ms, header.begin_timestamp_ms
    first = header.begin_timestamp_ms + seconds * 1000
    if not seconds and header.end_timestamp_ms < header.begin_timestamp_ms:
        return 0, first + _ROUNDED_MS  # the file began while the clock was ahead
    return first, first + _ROUNDED_MS


def _check(file: IndexFile, header: Header, slot: int, number: int) -> None:
    """Raise ``CorruptIndex`` for a damaged header, or a slot that leads to no entry."""
    for problem in file.problems(header):
        raise file.corrupt(problem, 0)
    if number < header.count and number >= 0:
        return
    if not header.count <= number < file.shape.entries or not _in_flight(file, header, number):
        raise file.corrupt(
            f"slot {slot} says {number}, expected 0 to {header.count - 1}", file.shape.slot_at(slot)
        )


def _in_flight(file: IndexFile, header: Header, number: int) -> bool:
    """Whether another process is about to count an entry that it has already written."""
    key_hash, offset, _, _ = file.entry(number)
    return (key_hash, offset) != (0, 0) and offset >= header.end_offset


# --- links ---


@attrs.frozen(eq=False)
class Links:
    """The links of a run of new entries.

    :ivar previous: ``int32``, for each entry the previous one in its slot, or 0
    :ivar slots: ``int64``, the distinct slots with new entries
    :ivar heads: ``int64``, the newest entry of each of ``slots``
    :ivar opened: number of ``slots`` that were empty
    """

    previous: Ints
    slots: Longs
    heads: Longs
    opened: int


def follow(
    heads: Ints, entries: NDArray[Any], first: int, last_offset: int
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


# --- checks ---


def _problem(file: IndexFile, position: int, what: str) -> Problem:
    return Problem(file.path, position, BROKEN, found=what)


def outline(file: IndexFile) -> Iterator[Problem]:
    """Check the header, and the first and last entry."""
    header = file.header()
    wrong = [_problem(file, 0, what) for what in header.problems(file.shape)]
    if wrong or header.is_empty:
        yield from wrong
        return
    for number, offset, at in (
        (1, header.begin_offset, _AT_BEGIN_OFFSET),
        (header.count - 1, header.end_offset, _AT_END_OFFSET),
    ):
        if (found := file.offset(number)) != offset:
            what = f"the header says physical offset {offset}, entry {number} says {found}"
            yield _problem(file, at, what)


def examine(file: IndexFile, *, growing: bool = False) -> Iterator[Problem]:
    """Check everything: each entry must be linked exactly once, from its own slot.

    :param growing: whether another process may be writing: then entries that the header does not
        count yet, and the header's last fields, are not errors
    """
    header = file.header()
    wrong = [_problem(file, 0, what) for what in header.problems(file.shape)]
    yield from wrong or () if growing else outline(file)
    if wrong:
        return
    heads = np.zeros(file.shape.slots, np.int32)
    yield from _entries(file, header, heads)
    yield from _slots(file, header.count, heads, growing)
    used = int(np.count_nonzero(heads))
    if not growing and used != header.used_slots:
        what = f"hashSlotCount is {header.used_slots}, but {used} slots have entries"
        yield _problem(file, _AT_USED_SLOTS, what)


def _entries(file: IndexFile, header: Header, heads: Ints) -> Iterator[Problem]:
    """Yield the first error of each chunk; sets ``heads`` to the expected slots."""
    last = header.begin_offset
    for first in range(1, header.count, _CHUNK):
        some = file.entries(first, min(first + _CHUNK, header.count))
        sound = follow(heads, some, first, last)
        if sound is not None:
            last = sound[1]
            continue
        hashes = some["hash"].astype(np.int32)
        links = link(heads, np.maximum(hashes, 0) % file.shape.slots, first)
        heads[links.slots] = links.heads
        offsets = some["offset"].astype(np.int64)
        before = np.append(last, offsets[:-1])  # a difference could overflow
        for broken, what, within in (
            (hashes < 0, "a negative hash", 0),
            (offsets < before, "an offset less than that of the entry before", 4),
            (some["seconds"] < 0, "a negative time", 12),
            (some["previous"] != links.previous, "not the entry before it in its slot", 16),
        ):
            if broken.any():
                number = first + int(broken.argmax())
                at = file.shape.entry_at(number) + within
                yield _problem(file, at, f"entry {number} has {what}")
        last = int(offsets[-1])


def _slots(file: IndexFile, count: int, heads: Ints, growing: bool) -> Iterator[Problem]:
    slots = file.slots().astype(np.int32)
    if growing:
        _pass_over_new(file, slots, count)
    for slot in np.flatnonzero(slots != heads)[:1].tolist():
        what = f"slot {slot} says {slots[slot]}, but its newest entry is {heads[slot]}"
        yield _problem(file, file.shape.slot_at(slot), what)


def _pass_over_new(file: IndexFile, slots: Ints, count: int) -> None:
    """Replace entries that are not counted yet by the newest counted one of their slot."""
    entries = file.shape.entries
    while (new := np.flatnonzero((slots >= count) & (slots < entries))).size:
        last = int(slots[new].max())
        previous = file.entries(count, last + 1)["previous"]
        back = previous[slots[new] - count].astype(np.int32)
        slots[new] = np.where(back < slots[new], back, -1)


def first_unsound(files: Sequence[IndexFile], vouched_ms: int, *, unclean: bool) -> int:
    """The index of the first file that an owner must build again, with all later ones.

    After any stop, that is a file whose header and outermost entries are inconsistent; after an
    unclean one, also a file with any error that the checkpoint does not cover.

    :param vouched_ms: the checkpoint's index timestamp: a file that ends by then is durable
    """
    for at, file in enumerate(files):
        is_last = at == len(files) - 1
        checked = unclean and (is_last or not _is_vouched_for(file, vouched_ms))
        if is_broken(file) if checked else any(outline(file)):
            return at
    return len(files)


def is_broken(file: IndexFile) -> bool:
    """Whether the entries that the header counts are inconsistent; later bytes do not matter."""
    return any(True for _ in examine(file, growing=True))


def _is_vouched_for(file: IndexFile, vouched_ms: int) -> bool:
    header = file.header()
    return not any(header.problems(file.shape)) and header.end_timestamp_ms <= vouched_ms


def first_wrong(files: FileSystem, wrong: Sequence[CorruptIndex], *, alone: bool) -> Path | None:
    """The oldest file to remove, with all later ones; ``None`` if no length is wrong.

    Raises the first of ``wrong`` if settings may be the cause: no file has the right length
    (``alone``), all have the same one, and it cannot result from truncation alone.
    """
    paths = sorted(Path(str(error.path)) for error in wrong)
    alike = alone and len({path.lstat().st_size for path in paths}) == 1
    if alike and not any(_was_cut(files, path) for path in paths):
        raise wrong[0]
    return paths[0] if paths else None


def _was_cut(files: FileSystem, path: Path) -> bool:
    """Whether no settings make this length, or the counted entries do not fit in it."""
    with closing(files.open(path)) as file:
        length, head = file.size(), file.read_at(0, HEADER.size)
    if len(head) < HEADER.size or (length - HEADER.size) % SLOT.size:
        return True
    least = HEADER.size + SLOT.size + Header.unpack(head).count * ENTRY.size
    return length < least
