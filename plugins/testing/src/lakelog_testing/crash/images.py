"""Derives from a crash point the directories that the crash could leave: its images."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from math import prod
from pathlib import Path
from random import Random
from typing import Final

import attrs

from lakelog_testing.crash.filesystem import CrashPoint, FrozenState
from lakelog_testing.crash.states import ROOT, FrozenFile

KILL: Final = "kill"
"""The kind of the image that loses nothing."""
_FEW: Final = 24
"""Up to this many images of a point are all tried; otherwise a random sample."""


@attrs.frozen(eq=False)
class Image:
    """The content of a directory after a crash.

    :ivar kind: how it was chosen
    :ivar folders: paths from the root, parents first
    :ivar files: contents by path from the root
    """

    kind: str
    folders: tuple[str, ...]
    files: dict[str, bytes]

    def digest(self) -> int:
        """A hash, equal for equal images; valid within one process."""
        return hash((self.folders, tuple(self.files.items())))

    def write_out(self, target: Path) -> None:
        """Write it to a new directory."""
        base = str(target)
        os.mkdir(base)
        for folder in self.folders:
            os.mkdir(f"{base}/{folder}")
        for name, content in self.files.items():
            fd = os.open(f"{base}/{name}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.write(fd, content)
            finally:
                os.close(fd)


def nothing_lost(state: FrozenState) -> Image:
    """The state that a killed process leaves: everything visible to programs."""
    kept = state.names.kept(state.names.pending)
    return _image(KILL, kept, state, lambda file: file.volatile)


def all_lost(state: FrozenState) -> Image:
    """The state if nothing was written back except by syncs."""
    return _image("durable only", state.names.kept([]), state, lambda file: file.durable)


def images(point: CrashPoint, rng: Random, most: int) -> Iterator[Image]:
    """At most ``most`` images of a crash point: all if there are few, otherwise a random sample.

    The state after a kill and the durable state are always included.
    """
    state = point.state
    yield nothing_lost(state)
    yield all_lost(state)
    yield from _all(state) or (_random(state, rng) for _ in range(most - 2))


def different(
    points: Iterable[CrashPoint], rng: Random, most: int
) -> Iterator[tuple[CrashPoint, Image]]:
    """The images of several points, each once, with the first point that has it.

    :param most: limit of images for each point
    """
    seen: set[int] = set()
    for point in points:
        for image in images(point, rng, most):
            digest = image.digest()
            if digest not in seen:
                seen.add(digest)
                yield point, image


def _all(state: FrozenState) -> list[Image] | None:
    """All images with whole pages; ``None`` if there are too many, or if pages can be torn."""
    unsettled = [file for file in state.files.values() if not file.is_settled]
    choices = prod(file.choices() for file in unsettled)
    keeps = state.names.each(_FEW)
    if keeps is None or choices * len(keeps) > _FEW or _can_tear(unsettled):
        return None
    found = []
    for keep in keeps:
        for contents in product(*(file.each() for file in unsettled)):
            chosen = dict(zip(unsettled, contents, strict=True))
            kept = state.names.kept(keep)
            found.append(_image("one of all", kept, state, chosen.__getitem__))
    return found


def _can_tear(files: Iterable[FrozenFile]) -> bool:
    return any(
        len(versions) > 1
        for file in files
        for epoch in file.epochs
        for versions in epoch.versions.values()
    )


_MOODS: Final = (
    # probabilities: names kept, newest pages, torn pages
    (1.0, 0.9, 0.05),
    (1.0, 0.5, 0.0),
    (1.0, 0.5, 0.5),
    (1.0, 0.05, 0.1),
    (0.5, 1.0, 0.0),
    (0.5, 0.5, 0.2),
    (0.9, 0.1, 0.0),
    (0.1, 0.9, 0.1),
)


def _random(state: FrozenState, rng: Random) -> Image:
    names, newest, torn = rng.choice(_MOODS)
    keep = state.names.some(rng, names)
    return _image("mixed", state.names.kept(keep), state, lambda f: f.mixed(rng, newest, torn))


def _image(
    kind: str,
    directories: dict[int, dict[str, int]],
    state: FrozenState,
    content: Callable[[FrozenFile], bytes],
) -> Image:
    folders: list[str] = []
    files: dict[str, bytes] = {}

    def collect(number: int, prefix: str) -> None:
        for name, child in sorted(directories.get(number, {}).items()):
            path = prefix + name
            file = state.files.get(child)
            if file is None:
                assert child in directories, f"{path} is neither a file nor a folder"
                folders.append(path)
                collect(child, path + "/")
            else:
                files[path] = file.volatile if file.is_settled else content(file)

    collect(ROOT, "")
    return Image(kind, tuple(folders), files)
