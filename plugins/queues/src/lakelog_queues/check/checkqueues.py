"""Checks all queues of a store against its log, in one pass, and changes nothing.

For every record that must have a unit, the check compares the unit's place, physical offset, size
and tags code; in batch queues also store time, first queue offset and count. It also finds units
without a record, and wrong names and lengths of files. It needs a few hundred bytes of memory for
each queue, and one run of records.

Not checked are units of records before the first byte of the log, and in ``consumequeue_ext`` the
store times, bitmaps, and units to which no queue points.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from lakelog.errors import CorruptQueue
from lakelog.files.filesystem import FileSystem, unreadable
from lakelog.files.segment_files import segment_files
from lakelog.format.layout import BATCHCONSUMEQUEUE_DIR, CONSUMEQUEUE_DIR, CONSUMEQUEUE_EXT_DIR
from lakelog.format.properties import LIGHT_QUEUE_PREFIX, REPAIRED_TOPIC
from lakelog.format.queue_offsets import Longs, Queue, Units
from lakelog.format.record_batch import RecordBatch
from lakelog.hooks.dispatching import DamagedRanges, Problem
from lakelog.lazy import np
from lakelog_queues.check.checkunits import CheckedFiles, Resolve, UnitCheck, as_they_are
from lakelog_queues.dispatching.grouping import Grouping, QueueUnits
from lakelog_queues.dispatching.making import queues_in
from lakelog_queues.files import batchqueue
from lakelog_queues.files.ext import ExtFiles
from lakelog_queues.files.openfiles import OpenFiles
from lakelog_queues.files.replaced import Replacements
from lakelog_queues.files.simplequeue import first_behind
from lakelog_queues.plugin import ConsumeQueueSettings
from lakelog_queues.units.simpleunits import UNIT, UNIT_BYTES, RawUnits, columns, pack, unpack
from lakelog_queues.units.tags import is_address

BROKEN: Final = "the files of tags codes do not fit together"


def ext_resolver(
    files: FileSystem, directory: Path, file_size_bytes: int, opened: OpenFiles
) -> tuple[Resolve, list[Problem]]:
    """A function that replaces addresses by tags codes, and problems with names and lengths.

    The function leaves an address unchanged if there is no unit at it.
    """
    if not directory.is_dir():
        return as_they_are, []
    ext = ExtFiles(files, directory, file_size_bytes, read_only=True, opened=opened)
    try:
        ext.load()
    except CorruptQueue as error:
        return as_they_are, [Problem(Path(error.path or directory), 0, BROKEN, "", str(error))]

    def resolve(units: RawUnits) -> RawUnits:
        codes = units["tags_code"].astype(np.int64)
        at = np.flatnonzero(is_address(codes))
        if not len(at):
            return units
        codes[at] = _codes(ext, codes[at])
        resolved = units.copy()
        resolved["tags_code"] = codes
        return resolved

    return resolve, []


def _codes(ext: ExtFiles, addresses: Longs) -> Longs:
    try:
        return ext.resolve(addresses)[0]
    except CorruptQueue:
        if len(addresses) == 1:
            return addresses
    half = len(addresses) // 2
    return np.concatenate([_codes(ext, addresses[:half]), _codes(ext, addresses[half:])])


_SIMPLE: Final = ("size", "tags_code")
_BATCH: Final = ("size", "tags_code", "store_time", "base_offset", "batch_size", "compacted_offset")
_MOST_OPEN: Final = 64
_LOOKS: Final = 3
"""Number of listings of a folder, as a listing may miss files that are created meanwhile."""
_PATIENCE_SECONDS: Final = 1.0
_LOOK_AGAIN_SECONDS: Final = 0.02


@attrs.frozen
class Checked:
    """The store that is checked.

    :ivar path: the store directory
    :ivar batch_topics: topics with batch queues
    :ivar light_queues: whether records feed light queues
    :ivar tombstones: by topic, the physical offset below which its records have no units
    :ivar minimum: physical offset of the first byte of the log
    :ivar living: whether an owner writes meanwhile
    """

    files: FileSystem
    path: Path
    settings: ConsumeQueueSettings
    batch_topics: Collection[str]
    light_queues: bool
    tombstones: Mapping[str, int]
    minimum: int
    living: bool


class QueuesVerifier:
    """A :class:`~lakelog.hooks.dispatching.Verifier`.

    Light queues are checked if the settings enable them, or if there is one. While an owner writes,
    only records are checked that end at or before the physical end of the most advanced queue at
    the start. The check waits up to a second for their units.
    """

    def __init__(self, checked: Checked) -> None:
        self._checked = checked
        self._opened = OpenFiles(checked.files, write=False, most=_MOST_OPEN)
        self._queues: dict[Queue, UnitCheck] = {}
        self._replacing: list[Units] = []
        self._replacements = Replacements.of(())
        self._damaged = DamagedRanges()
        self._own: list[Problem] = []
        for queue in _present(checked):
            self._queues[queue] = self._check(queue)
            self._own += self._of_files(self._queues[queue])
        self._reach = max((each.reached for each in self._queues.values()), default=0)
        light = any(topic.startswith(LIGHT_QUEUE_PREFIX) for topic, _ in self._queues)
        self._grouping = Grouping(
            checked.batch_topics, checked.light_queues or light, checked.tombstones
        )

    def take(self, batch: RecordBatch) -> Iterator[Problem]:
        """Compare with a run of records."""
        yield from self._look()
        for group in self._grouping.units(batch):
            if group.queue[0] == REPAIRED_TOPIC:
                self._replacing.append(group.columns[0])
                self._replacements = Replacements.of(self._replacing)
            found = self._queues.get(group.queue)
            if found is None:
                found = self._queues[group.queue] = self._check(group.queue)
                if self._checked.living:
                    found.leave_out()  # it was made after the check began
            if found.files.fits:
                yield from self._compare(found, group)

    def pass_damage(self, offset: int, end_offset: int) -> None:
        """Accept units that lead into this range; it is reported as damage of the log instead."""
        self._damaged.add(offset, end_offset)

    def finish(self, end_offset: int) -> Iterator[Problem]:
        """Compare the remaining units."""
        yield from self._look()
        if self._checked.living:
            self._wait_for_late()
        for found in self._queues.values():
            if found.files.fits:
                yield from found.finish(end_offset, living=self._checked.living)

    def close(self) -> None:
        """Close the files."""
        self._opened.close()

    def _look(self) -> Iterator[Problem]:
        """Problems with names and lengths of files; each is returned once."""
        while self._own:
            yield self._own.pop(0)

    def _check(self, queue: Queue) -> UnitCheck:
        checked, settings = self._checked, self._checked.settings
        batches = queue[0] in checked.batch_topics
        folder = BATCHCONSUMEQUEUE_DIR if batches else CONSUMEQUEUE_DIR
        unit = batchqueue.UNIT if batches else np.dtype(UNIT)
        size = settings.batch_file_size_bytes if batches else settings.file_entries * UNIT_BYTES
        name = queue[0], str(queue[1])
        place = checked.path.joinpath(folder, *name)
        files = CheckedFiles(checked.files, self._opened, place, unit, size)
        fields: Sequence[str] = _BATCH
        resolve: Resolve = as_they_are
        replacements = self._none
        if not batches:
            ext = checked.path.joinpath(CONSUMEQUEUE_EXT_DIR, *name)
            size = settings.ext_file_size_bytes
            resolve, wrong = ext_resolver(checked.files, ext, size, self._opened)
            self._own += wrong
            fields = _SIMPLE
            replacements = self._none if queue[0] == REPAIRED_TOPIC else self._all
        return UnitCheck(files, checked.minimum, fields, resolve, replacements, self._damaged)

    @staticmethod
    def _none() -> Replacements:
        return Replacements.of(())

    def _all(self) -> Replacements:
        return self._replacements

    def _of_files(self, queue: UnitCheck) -> list[Problem]:
        """Problems with names and lengths of files."""
        found = list(queue.files.problems())
        for _ in range(_LOOKS if self._checked.living and found else 0):
            queue.files.look()
            found = list(queue.files.problems())
        return found

    def _compare(self, found: UnitCheck, group: QueueUnits) -> Iterator[Problem]:
        units, times = group.columns
        if self._checked.living:
            due = units.offsets + units.sizes <= self._reach
            units, times = units[due], times[due]
        if group.queue[0] not in self._checked.batch_topics:
            yield from found.take(pack(units), units.queue_offsets)
            return
        fit = batchqueue.readable(units)
        yield from found.take(batchqueue.pack(units[fit], times[fit]), None)

    def _wait_for_late(self) -> None:
        """Wait for queues to grow, and forget missing units that were written meanwhile."""
        until = time.monotonic() + _PATIENCE_SECONDS
        late = [each for each in self._queues.values() if each.late]
        while late and time.monotonic() < until:
            for each in late:
                self._forget_if_there(each)
            late = [each for each in late if each.late]
            if late:
                time.sleep(_LOOK_AGAIN_SECONDS)

    def _forget_if_there(self, queue: UnitCheck) -> None:
        end = queue.files.end
        queue.files.look()
        if queue.files.end - end >= queue.late:
            queue.forget_late()
        queue.files.end = end


def _present(checked: Checked) -> Iterator[Queue]:
    """The queues that have a folder."""
    for name, batches in ((CONSUMEQUEUE_DIR, False), (BATCHCONSUMEQUEUE_DIR, True)):
        for queue in queues_in(checked.path / name):
            if (queue[0] in checked.batch_topics) == batches:
                yield queue


def queues_with_replacements(files: FileSystem, path: Path) -> tuple[Queue, ...]:
    """The queues with units that lead to a repair's records, sorted; changes nothing.

    See :mod:`lakelog_queues.files.replaced`.

    :param path: the store directory
    """
    root = path / CONSUMEQUEUE_DIR
    try:
        queues = sorted(queues_in(root))
    except OSError as error:
        raise unreadable(root, error) from error
    opened = OpenFiles(files, write=False, most=_MOST_OPEN)
    try:
        own = [_units(files, opened, root, each) for each in queues if each[0] == REPAIRED_TOPIC]
        whole = [each.read(each.first, each.end) for each in own if each is not None]
        replacements = Replacements.of(unpack(units, 0) for units in whole)
        return tuple(
            queue
            for queue in queues
            if replacements
            and queue[0] != REPAIRED_TOPIC
            and _points_to(_units(files, opened, root, queue), replacements)
        )
    finally:
        opened.close()


def _points_to(units: CheckedFiles | None, replacements: Replacements) -> bool:
    """Whether any unit leads to a replacement."""
    if units is None:
        return False

    def read(first: int, count: int) -> bytes:
        return units.read(first, first + count).tobytes()

    places = (
        first_behind(read, units.first, units.end, each) for each in replacements.offsets.tolist()
    )
    found = (read(at, 1) for at in places if at < units.end)
    return any(bool(np.any(replacements.are_pointed_to(columns(each)))) for each in found)


def _units(files: FileSystem, opened: OpenFiles, root: Path, queue: Queue) -> CheckedFiles | None:
    """The units of a simple queue; ``None`` if its files have different or impossible lengths."""
    folder = root / queue[0] / str(queue[1])
    sizes = {each.length for each in segment_files(folder, files.list(folder)) if each.length}
    if len(sizes) != 1 or min(sizes) % UNIT_BYTES:
        return None
    return CheckedFiles(files, opened, folder, np.dtype(UNIT), sizes.pop())
