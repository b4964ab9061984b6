"""What a crash may leave of one file: its durable content, and all that its pages were since.

A page that changed since the last sync may be found as it was at any moment since, and torn at
sectors. The length may be any that it was. What a file held before it was cut short does not come
back with a length that it got later: the blocks were given back.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Final, TypeVar

import attrs

PAGE_BYTES: Final = 4096
SECTOR_BYTES: Final = 512
ZEROS: Final = bytes(PAGE_BYTES)
_T = TypeVar("_T")


def page_of(data: bytes, page: int) -> bytes:
    """A page of a file's content, filled with zeros."""
    found = data[page * PAGE_BYTES : (page + 1) * PAGE_BYTES]
    return found if len(found) == PAGE_BYTES else found.ljust(PAGE_BYTES, b"\0")


def _touched(position: int, length: int) -> range:
    """The numbers of the pages that a range touches."""
    return range(position // PAGE_BYTES, -(-(position + length) // PAGE_BYTES))


def _not_zero(content: bytes) -> set[int]:
    """The pages that certainly have blocks; others may be holes."""
    return {page for page in pages(len(content)) if page_of(content, page) != ZEROS}


def pages(length: int) -> range:
    """The numbers of the pages of a file of ``length`` bytes."""
    return range(-(-length // PAGE_BYTES))


@attrs.frozen
class FrozenEpoch:
    """The time between two moments at which a file was cut short.

    :ivar versions: by page, what it was, oldest first
    :ivar lengths: what the length was, oldest first
    """

    versions: Mapping[int, tuple[bytes, ...]]
    lengths: tuple[int, ...]

    def choices(self) -> int:
        """How many contents there are, whole pages only."""
        count = len(self.lengths)
        for versions in self.versions.values():
            count *= len(versions)
        return count


@attrs.frozen(eq=False)
class FrozenFile:
    """A file at one moment: all that a crash then may leave of it.

    :ivar durable: what the last sync made durable
    :ivar volatile: what programs see
    """

    durable: bytes
    volatile: bytes
    epochs: tuple[FrozenEpoch, ...]

    @property
    def is_settled(self) -> bool:
        """Whether a crash leaves one content only."""
        return len(self.epochs) == 1 and self.epochs[0].choices() == 1

    def choices(self) -> int:
        """How many contents there are, whole pages only; the same one may count twice."""
        return sum(epoch.choices() for epoch in self.epochs)

    def each(self) -> Iterator[bytes]:
        """Every content of whole pages."""
        for epoch in self.epochs:
            numbers = sorted(epoch.versions)
            for length in epoch.lengths:
                for chosen in _products([epoch.versions[page] for page in numbers]):
                    yield self._built(dict(zip(numbers, chosen, strict=True)), length)

    def mixed(self, rng: Random, newest: float, torn: float) -> bytes:
        """One content at random.

        :param newest: probability that a page, or the length, is the newest; else it is the oldest
            or any
        :param torn: probability that a page is a mix of sectors of its versions
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


def _products(lists: Sequence[Sequence[bytes]]) -> Iterator[tuple[bytes, ...]]:
    from itertools import product

    return product(*lists)


def _one(rng: Random, versions: Sequence[_T], newest: float) -> _T:
    if len(versions) == 1 or rng.random() < newest:
        return versions[-1]
    return versions[0] if rng.random() < 0.5 else rng.choice(versions)


def _torn(rng: Random, versions: Sequence[bytes]) -> bytes:
    """Sectors of two versions, or of all."""
    some = versions if rng.random() < 0.3 else rng.sample(versions, min(2, len(versions)))
    starts = range(0, PAGE_BYTES, SECTOR_BYTES)
    return b"".join(rng.choice(some)[start : start + SECTOR_BYTES] for start in starts)


class Epoch:
    """A :class:`FrozenEpoch` that grows."""

    def __init__(self, versions: dict[int, list[bytes]], lengths: list[int]) -> None:
        self.versions = versions
        self.lengths = lengths

    def note_page(self, page: int, before: bytes, now: bytes) -> None:
        """A page was found changed."""
        self.versions.setdefault(page, [before]).append(now)

    def note_length(self, length: int) -> None:
        """The length was found changed."""
        if self.lengths[-1] != length:
            self.lengths.append(length)

    def frozen(self) -> FrozenEpoch:
        """As it is now."""
        versions = {page: tuple(dict.fromkeys(each)) for page, each in self.versions.items()}
        return FrozenEpoch(versions, tuple(dict.fromkeys(self.lengths)))


class Contents:
    """One inode: reads it by a descriptor of its own, and remembers what it was.

    :ivar was_synced: whether a sync of it has ended well
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
        """An inode of which not all was durable when the process died; the machine lives on."""
        found = cls(fd, before.durable, trespass=trespass)
        found._with_blocks |= _not_zero(before.volatile)
        found._epochs = [
            Epoch({page: list(each) for page, each in epoch.versions.items()}, list(epoch.lengths))
            for epoch in before.epochs
        ]
        found._seen = before.volatile
        return found

    def note_blocks(self, position: int, length: int) -> None:
        """A call has given blocks to a range."""
        self._with_blocks.update(_touched(position, length))

    def check_blocks(self, position: int, length: int) -> None:
        """Complain of a range that is mapped to be written, and has no blocks."""
        self._complain("mapped to be written", _touched(position, length))

    def _complain(self, what: str, touched: Iterable[int]) -> None:
        without = sorted(set(touched) - self._with_blocks)
        if without:
            self._trespass(self._fd, f"{what}, but not allocated: pages {without}")
            self._with_blocks.update(without)  # once is enough

    def look(self) -> None:
        """Note what changed since the last look."""
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
                epoch.note_page(page, before, now)
                changed.append(page)
        self._complain("stored to", changed)
        self._seen = data

    def _cut(self, length: int) -> None:
        """A new epoch: behind ``length``, nothing of before can be found."""
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
        """What a sync that begins now will have made durable."""
        self.look()
        return self._seen

    def fail_sync(self) -> None:
        """A sync failed: the kernel takes dirty pages for clean, and need not write them ever."""
        self.look()
        for page in pages(len(self._seen)):
            if page_of(self._seen, page) != page_of(self._durable, page):
                self._dropped[page] = page_of(self._seen, page)

    def _without_dropped(self, content: bytes) -> bytes:
        """What a sync makes durable, but for pages that an earlier, failed one had taken."""
        for page, dropped in self._dropped.items():
            if page_of(content, page) == dropped:
                start, end = page * PAGE_BYTES, min((page + 1) * PAGE_BYTES, len(content))
                kept = page_of(self._durable, page)[: end - start]
                content = content[:start] + kept + content[end:]
        return content

    def end_sync(self, content: bytes) -> None:
        """The sync has returned; what was stored meanwhile is not durable."""
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
        """As it is now."""
        self.look()
        if self._frozen is None:
            epochs = tuple(epoch.frozen() for epoch in self._epochs)
            self._frozen = FrozenFile(self._durable, self._seen, epochs)
        return self._frozen

    def close(self) -> None:
        """Let go of the descriptor."""
        os.close(self._fd)


def _since(versions: Iterable[bytes], start: bytes) -> list[bytes]:
    """The versions behind the last one that is ``start``."""
    listed = list(versions)
    at = max((at for at, each in enumerate(listed) if each == start), default=-1)
    return listed[at + 1 :]
