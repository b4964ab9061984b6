"""The directory entries that a crash may leave: made, moved and removed since the last sync.

A change of a name (create, rename, exchange, unlink, mkdir, rmdir) is atomic, even a rename between
two directories, as on every file system with a journal. Changes of one name occur in order. Changes
of different names occur in any order, even in one directory. A sync of a directory makes its
changes durable, with the earlier changes that these depend on. A sync of a file makes no name
durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Final, TypeAlias

import attrs

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
