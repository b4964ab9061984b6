"""The states in which a crash may leave names and files: what is durable, and what came since.

Names. A change of a name (create, rename, exchange, unlink, mkdir, rmdir) is atomic, even a rename
between two directories, as on every file system with a journal. Changes of one name occur in order.
Changes of different names occur in any order, even in one directory. A sync of a directory makes
its changes durable, with the earlier changes that these depend on. A sync of a file makes no name
durable.

Contents. A page that changed since the last sync may have any of its states since then, or be torn
at sectors. The length may be any of its lengths since then. Content that was truncated does not
return with a later length, because its blocks were freed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from random import Random
from typing import Final, TypeAlias, TypeVar

import attrs

# --- names ---

ROOT: Final = 0
"""The number of the root directory."""

Entry: TypeAlias = "tuple[int, str]"
"""The number of a directory, and a name in it."""
Directories: TypeAlias = "Mapping[int, Mapping[str, int]]"
"""The entries of each directory: numbers of files and directories by name."""


@attrs.frozen(eq=False)
class Change:
    """The effect of one system call: the new target of each name; ``None`` means removed."""

    what: str
    names: tuple[tuple[Entry, int | None], ...]

    def touches(self, entries: Iterable[Entry]) -> bool:
        """Whether it changed one of these names."""
        return any(entry in entries for entry, _ in self.names)


@attrs.frozen(eq=False)
class FrozenNames:
    """All directories at one moment.

    :ivar durable: entries that survive a crash for certain
    :ivar pending: changes that a crash may lose, in order
    """

    durable: Directories
    pending: tuple[Change, ...]

    def kept(self, keep: Sequence[Change]) -> dict[int, dict[str, int]]:
        """The directories with some of the pending changes, which must be a possible selection."""
        found = {number: dict(entries) for number, entries in self.durable.items()}
        for change in keep:
            for (directory, name), number in change.names:
                entries = found.setdefault(directory, {})
                if number is None:
                    entries.pop(name, None)
                else:
                    entries[name] = number
                    if change.what == "mkdir":
                        found.setdefault(number, {})
        return found

    def some(self, rng: Random, probability: float) -> list[Change]:
        """A random selection of pending changes that is possible."""
        lost: set[Entry] = set()
        keep = []
        for change in self.pending:
            if rng.random() < probability and not change.touches(lost):
                keep.append(change)
            else:
                lost.update(entry for entry, _ in change.names)
        return keep

    def each(self, most: int) -> list[list[Change]] | None:
        """Every possible selection of pending changes; ``None`` if there are more than ``most``."""
        found: list[tuple[list[Change], frozenset[Entry]]] = [([], frozenset())]
        for change in self.pending:
            own = frozenset(entry for entry, _ in change.names)
            kept = [([*keep, change], lost) for keep, lost in found if not lost & own]
            found = [(keep, lost | own) for keep, lost in found] + kept
            if len(found) > most:
                return None
        return [keep for keep, _ in found]


class Names:
    """All directories as programs see them, and their durable state."""

    def __init__(self) -> None:
        self.directories: dict[int, dict[str, int]] = {ROOT: {}}
        self._durable: dict[int, dict[str, int]] = {ROOT: {}}
        self._pending: list[Change] = []
        self._frozen: FrozenNames | None = None

    def resume(self, before: FrozenNames) -> None:
        """Resume after the process died and the machine survived."""
        self._durable = {number: dict(entries) for number, entries in before.durable.items()}
        self._pending = list(before.pending)
        self.directories = before.kept(before.pending)

    def add_durable(self, directory: int, name: str, number: int, *, is_dir: bool) -> None:
        """Add an initial entry."""
        self._durable.setdefault(directory, {})[name] = number
        self.directories.setdefault(directory, {})[name] = number
        if is_dir:
            self._durable[number] = {}
            self.directories[number] = {}

    def change(self, what: str, *names: tuple[Entry, int | None]) -> None:
        """Apply a change that is not durable yet."""
        self._frozen = None
        self._pending.append(Change(what, names))
        for (directory, name), number in names:
            if number is None:
                self.directories[directory].pop(name, None)
            else:
                self.directories.setdefault(directory, {})[name] = number

    def make_dir(self, entry: Entry, number: int) -> None:
        """Add a directory that is not durable yet."""
        self.directories[number] = {}
        self.change("mkdir", (entry, number))

    def sync(self, directory: int) -> None:
        """Make the changes in one directory durable, and those that they depend on."""
        self._frozen = None
        needed: set[Entry] = set()
        done, rest = [], []
        for change in reversed(self._pending):
            here = any(number == directory for (number, _), _ in change.names)
            if here or change.touches(needed):
                needed.update(entry for entry, _ in change.names)
                done.append(change)
            else:
                rest.append(change)
        self._durable = FrozenNames(self._durable, ()).kept(done[::-1])
        self._pending = rest[::-1]

    def reachable(self) -> set[int]:
        """Numbers that have a name, or may have one after a crash."""
        found = {number for entries in self._durable.values() for number in entries.values()}
        found.update(number for each in self.directories.values() for number in each.values())
        found.update(number for change in self._pending for _, number in change.names if number)
        return found

    def frozen(self) -> FrozenNames:
        """An immutable copy."""
        if self._frozen is None:
            durable = {number: dict(entries) for number, entries in self._durable.items()}
            self._frozen = FrozenNames(durable, tuple(self._pending))
        return self._frozen


# --- contents ---

PAGE_BYTES: Final = 4096
SECTOR_BYTES: Final = 512
ZEROS: Final = bytes(PAGE_BYTES)
_T = TypeVar("_T")


def page_of(data: bytes, page: int) -> bytes:
    """A page of a file's content, padded with zeros."""
    found = data[page * PAGE_BYTES : (page + 1) * PAGE_BYTES]
    return found if len(found) == PAGE_BYTES else found.ljust(PAGE_BYTES, b"\0")


def _touched(position: int, length: int) -> range:
    """The numbers of the pages in a range."""
    return range(position // PAGE_BYTES, -(-(position + length) // PAGE_BYTES))


def _not_zero(content: bytes) -> set[int]:
    """The pages that are certain to have blocks; others may be holes."""
    return {page for page in pages(len(content)) if page_of(content, page) != ZEROS}


def pages(length: int) -> range:
    """The numbers of the pages of a file of ``length`` bytes."""
    return range(-(-length // PAGE_BYTES))


@attrs.define(eq=False)
class Epoch:
    """The period between two truncations of a file.

    :ivar versions: states of each page, oldest first
    :ivar lengths: lengths of the file, oldest first
    """

    versions: dict[int, list[bytes]]
    lengths: list[int]

    def note_length(self, length: int) -> None:
        """Record a changed length."""
        if self.lengths[-1] != length:
            self.lengths.append(length)

    def copied(self) -> Epoch:
        """A copy, in which each state and each length is once."""
        versions = {page: list(dict.fromkeys(each)) for page, each in self.versions.items()}
        return Epoch(versions, list(dict.fromkeys(self.lengths)))

    def choices(self) -> int:
        """The number of possible contents, with whole pages only."""
        return len(self.lengths) * prod(map(len, self.versions.values()))


@attrs.frozen(eq=False)
class FrozenFile:
    """All possible contents of a file after a crash at one moment.

    :ivar durable: content made durable by the last sync
    :ivar volatile: content visible to programs
    """

    durable: bytes
    volatile: bytes
    epochs: tuple[Epoch, ...]

    @property
    def is_settled(self) -> bool:
        """Whether a crash can leave only one content."""
        return len(self.epochs) == 1 and self.epochs[0].choices() == 1

    def choices(self) -> int:
        """The number of possible contents, with whole pages only; duplicates may count twice."""
        return sum(epoch.choices() for epoch in self.epochs)

    def each(self) -> Iterator[bytes]:
        """Yield every content with whole pages."""
        for epoch in self.epochs:
            numbers = sorted(epoch.versions)
            for length in epoch.lengths:
                for chosen in product(*(epoch.versions[page] for page in numbers)):
                    yield self._built(dict(zip(numbers, chosen, strict=True)), length)

    def mixed(self, rng: Random, newest: float, torn: float) -> bytes:
        """A random content.

        :param newest: probability that a page, or the length, is the newest; otherwise it is the
            oldest or any
        :param torn: probability that a page mixes sectors of its versions
        """
        epoch = self.epochs[-1] if rng.random() < newest else rng.choice(self.epochs)
        chosen = {
            page: _torn(rng, versions) if rng.random() < torn else _one(rng, versions, newest)
            for page, versions in epoch.versions.items()
        }
        return self._built(chosen, _one(rng, epoch.lengths, newest))

    def _built(self, chosen: Mapping[int, bytes], length: int) -> bytes:
        durable = self.durable
        parts = [chosen.get(page) or page_of(durable, page) for page in pages(length)]
        return b"".join(parts)[:length]


def _one(rng: Random, versions: Sequence[_T], newest: float) -> _T:
    if len(versions) == 1 or rng.random() < newest:
        return versions[-1]
    return versions[0] if rng.random() < 0.5 else rng.choice(versions)


def _torn(rng: Random, versions: Sequence[bytes]) -> bytes:
    """A page with sectors of two versions, or of all."""
    some = versions if rng.random() < 0.3 else rng.sample(versions, min(2, len(versions)))
    starts = range(0, PAGE_BYTES, SECTOR_BYTES)
    return b"".join(rng.choice(some)[start : start + SECTOR_BYTES] for start in starts)


class Contents:
    """Tracks the states of one inode, which it reads by its own descriptor.

    :ivar was_synced: whether a sync of it succeeded
    """

    def __init__(
        self, fd: int, durable: bytes = b"", *, trespass: Callable[[int, str], None]
    ) -> None:
        self._fd = fd
        self._trespass = trespass
        self._with_blocks = _not_zero(durable)
        self._durable = durable
        self._seen = durable
        self._epochs = [Epoch({}, [len(durable)])]
        self._frozen: FrozenFile | None = None
        self._dropped: dict[int, bytes] = {}
        self.was_synced = False

    @classmethod
    def resumed(cls, fd: int, before: FrozenFile, trespass: Callable[[int, str], None]) -> Contents:
        """Track an inode with volatile content, after the process died and the machine survived."""
        found = cls(fd, before.durable, trespass=trespass)
        found._with_blocks |= _not_zero(before.volatile)
        found._epochs = [epoch.copied() for epoch in before.epochs]
        found._seen = before.volatile
        return found

    def note_blocks(self, position: int, length: int) -> None:
        """Record that a call allocated blocks for a range."""
        self._with_blocks.update(_touched(position, length))

    def check_blocks(self, position: int, length: int) -> None:
        """Report a range that is mapped for writing without blocks."""
        self._complain("mapped to be written", _touched(position, length))

    def _complain(self, what: str, touched: Iterable[int]) -> None:
        without = sorted(set(touched) - self._with_blocks)
        if without:
            self._trespass(self._fd, f"{what}, but not allocated: pages {without}")
            self._with_blocks.update(without)  # report each page once

    def look(self) -> None:
        """Record the changes since the last call."""
        data = os.pread(self._fd, os.fstat(self._fd).st_size, 0)
        seen = self._seen
        if data == seen:
            return
        self._frozen = None
        if len(data) < len(seen):
            self._cut(len(data))
            seen = seen[: len(data)]
        epoch = self._epochs[-1]
        epoch.note_length(len(data))
        changed = []
        for page in pages(len(data)):
            before, now = page_of(seen, page), page_of(data, page)
            if before != now:
                epoch.versions.setdefault(page, [before]).append(now)
                changed.append(page)
        self._complain("stored to", changed)
        self._seen = data

    def _cut(self, length: int) -> None:
        """Start a new epoch: after ``length``, no earlier content can return."""
        self._with_blocks &= set(pages(length))
        last, whole, rest = self._epochs[-1].versions, *divmod(length, PAGE_BYTES)
        versions = {page: list(each) for page, each in last.items() if page < whole}
        for page in pages(max(len(self._durable), len(self._seen), (max(last, default=0)) + 1)):
            if page == whole and rest:
                known = last.get(page) or [page_of(self._seen, page)]
                versions[page] = [each[:rest].ljust(PAGE_BYTES, b"\0") for each in known]
            elif page >= whole:
                versions[page] = [ZEROS]
        self._epochs.append(Epoch(versions, [length]))

    def begin_sync(self) -> bytes:
        """The content that a sync starting now will make durable."""
        self.look()
        return self._seen

    def fail_sync(self) -> None:
        """Record a failed sync: the kernel marks dirty pages clean, and may never write them."""
        self.look()
        for page in pages(len(self._seen)):
            if page_of(self._seen, page) != page_of(self._durable, page):
                self._dropped[page] = page_of(self._seen, page)

    def _without_dropped(self, content: bytes) -> bytes:
        """The content that a sync makes durable, without pages lost by a failed sync."""
        for page, dropped in self._dropped.items():
            if page_of(content, page) == dropped:
                start, end = page * PAGE_BYTES, min((page + 1) * PAGE_BYTES, len(content))
                kept = page_of(self._durable, page)[: end - start]
                content = content[:start] + kept + content[end:]
        return content

    def end_sync(self, content: bytes) -> None:
        """Record the end of a sync; changes during it are not durable."""
        self.look()
        self.was_synced = True
        content = self._without_dropped(content)
        epoch = Epoch({}, [len(content)])
        last = self._epochs[-1]
        epoch.note_length(len(self._seen))
        for page in pages(max(len(content), len(self._seen))):
            before, now = page_of(content, page), page_of(self._seen, page)
            if before != now:
                epoch.versions[page] = [before, *_since(last.versions.get(page, [now]), before)]
        self._durable, self._epochs, self._frozen = content, [epoch], None

    def frozen(self) -> FrozenFile:
        """An immutable copy."""
        self.look()
        if self._frozen is None:
            epochs = tuple(epoch.copied() for epoch in self._epochs)
            self._frozen = FrozenFile(self._durable, self._seen, epochs)
        return self._frozen

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)


def _since(versions: Iterable[bytes], start: bytes) -> list[bytes]:
    """The versions after the last one that equals ``start``."""
    listed = list(versions)
    at = max((at for at, each in enumerate(listed) if each == start), default=-1)
    return listed[at + 1 :]
