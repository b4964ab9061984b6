"""How a store that is being opened waits for owners that come and go."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from lakelog.errors import NoOwner, StoreLocked
from lakelog.files import RealFileSystem
from lakelog.ownership import OwnerLock
from lakelog.roles import choosing
from lakelog.roles.choosing import Chooser
from lakelog.roles.parts import Parts

FILES = RealFileSystem()
FOUND = cast("Parts", object())


class Owners:
    """What happens at each try to attach; the last one succeeds."""

    def __init__(self, path: Path, *happens: Callable[[Owners], object]) -> None:
        self._path = path
        self._happens: Iterator[Callable[[Owners], object]] = iter(happens)
        self.lock = OwnerLock.take(FILES, path)
        self.lock.tell_attended()

    def own(self) -> Parts:
        raise AssertionError("somebody owns it all the time")

    def attach(self) -> Parts:
        for happens in self._happens:
            happens(self)
            raise NoOwner("it does not listen")
        return FOUND

    def stay(self) -> None:
        time.sleep(0.1)

    def go(self) -> None:
        """The next owner has said nothing yet."""
        self.lock.release()
        self.lock = OwnerLock.take(FILES, self._path)

    def say(self) -> None:
        self.lock.tell_attended()


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "_GRACE_S", 0.05)


def test_each_owner_has_its_time_to_say_that_one_can_attach(tmp_path: Path) -> None:
    owners = Owners(tmp_path, Owners.stay, Owners.go, Owners.say, Owners.stay, Owners.go)
    try:
        assert Chooser(FILES, tmp_path, 10_000).auto(owners) is FOUND
    finally:
        owners.lock.release()


def test_an_owner_that_nobody_can_attach_to_is_named(tmp_path: Path) -> None:
    owners = Owners(tmp_path, Owners.go, *[Owners.stay] * 5)
    try:
        with pytest.raises(StoreLocked, match="nobody can attach"):
            Chooser(FILES, tmp_path, 10_000).auto(owners)
    finally:
        owners.lock.release()
