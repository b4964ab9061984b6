"""Contract tests for sinks: a table, and a store, as others leave them.

Messages of a store have landed in a table. Then somebody copies, restores or removes the table,
renames the store, or changes rows. The next dispatch lands each message once, or is refused by one
sentence and changes no file of the table. :data:`STATES` has what needs no knowledge of the format;
a format adds what its own users do.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from time import time
from typing import Any, ClassVar, Final, TypeAlias
from unittest import mock

import attrs
import pytest

import lakelog
from lakelog import Message
from lakelog.errors import LakelogError
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.identity import read_identity
from lakelog.format.layout import OWN_DIR, STORE_FILE, segment_name
from lakelog_testing.samples import copy_store

Key: TypeAlias = "tuple[str, str, int, int, int]"
"""The store, topic, queue id, queue offset and physical offset of a row."""
SEGMENT_BYTES: Final = 16 << 10
_SMALL: Final[dict[str, Any]] = {
    "flush": "none",
    "segment_size_bytes": SEGMENT_BYTES,
    "preallocate": False,
    "consume-queue.file_entries": 1_000,
    "hash-index.slots": 1_000,
    "hash-index.entries": 4_000,
}
_COMMITS: Final = 3
_EACH: Final = 80
"""So many commits, of so many messages each, before a state begins."""
LATER: Final = 20
"""So many messages come after it."""
_AHEAD_SECONDS: Final = 600


def put(store: Path, count: int, first: int = 0) -> None:
    """Put different messages, of which two of five have a tag, and one is no text."""
    with lakelog.open(store, **_SMALL) as opened:
        opened.put_batch(
            [
                Message(
                    f"topic-{at % 3}",
                    (b"\xff" if at % 5 == 0 else b"a") * (1 + at * 37 % 400),
                    tags=f"tag-{at % 5}" if at % 5 % 2 else None,
                    queue_id=at % 4,
                )
                for at in range(first, first + count)
            ]
        )


def name_of(store: Path) -> str:
    """The name of a store in a table: its UUID; the folder's name if lakelog never owned it."""
    found = read_identity(RealFileSystem(), store)
    return store.name if found is None else found.uuid


def contents(*paths: Path) -> dict[Path, bytes]:
    """Every file of these, and below these folders, with its bytes; links are followed."""
    found = [each for each in paths if each.is_file()]
    found += (
        Path(top, each) for path in paths for top, _, names in os.walk(path) for each in names
    )
    return {each: each.read_bytes() for each in found}


@attrs.define
class TableWorld:
    """A table, and the store that has landed in it; a state changes both, and what is expected.

    :ivar folder: has all of them, and is the same folder in each test
    :ivar dispatch: lands all messages of ``store`` in ``table``; returns the number of rows
    :ivar store_id: the name under which messages land; ``None`` for the store's own
    :ivar options: further options of a dispatch, with which only the format is concerned
    :ivar stores: the stores whose messages are the rows, by their names in the table
    :ivar gone: keys of messages that are no rows, as somebody has deleted them
    :ivar added: keys of rows of others
    :ivar lost: files that the table lists, and somebody removed or damaged
    :ivar kept: files and folders that the next dispatch must not change
    :ivar grows: whether more messages come before the next dispatch
    """

    folder: Path
    dispatch: Callable[[TableWorld], int]
    table: Path
    store: Path
    store_id: str | None = None
    options: dict[str, Any] = attrs.field(factory=dict)
    stores: dict[str, Path] = attrs.field(factory=dict)
    gone: set[Key] = attrs.field(factory=set)
    added: Counter[Key] = attrs.field(factory=Counter)
    lost: set[Path] = attrs.field(factory=set)
    kept: list[Path] = attrs.field(factory=list)
    grows: bool = True

    def land(self) -> int:
        """Dispatch now; return the number of rows."""
        return self.dispatch(self)

    def goes_on_in(self, store: Path) -> Path:
        """The store has this folder now, under the same name in the table."""
        for name, each in self.stores.items():
            self.stores[name] = store if each == self.store else each
        self.store = store
        return store

    def anew(self, **options: Any) -> None:
        """Make the table again, by a dispatch with these options."""
        shutil.rmtree(self.table)
        self.options |= options
        self.land()

    def messages(self) -> set[Key]:
        """The keys of all messages of :attr:`stores`."""
        found: set[Key] = set()
        for name, store in self.stores.items():
            with lakelog.open(store, mode="read") as opened:
                found |= {
                    (name, each.topic, each.queue_id, each.queue_offset, each.physical_offset)
                    for each in opened.scan()
                }
        return found

    def expected(self) -> Counter[Key]:
        """The keys of the rows that must be in the table."""
        return Counter(self.messages() - self.gone) + self.added


@attrs.frozen
class TableState:
    """A state of a table or store, or a move, made by somebody who knows nothing of lakelog.

    :ivar name: in the names of tests
    :ivar what: what was done, behind "somebody"
    :ivar act: does it
    :ivar refused: a regular expression for the error of the next dispatch; ``None`` if rows land
    :ivar remedy: what the error names, after which all rows land; ``None`` if it is another table
    :ivar has_dead_letters: whether some rows are dead letters
    :ivar only: why tables of other formats cannot be in this state
    """

    name: str
    what: str
    act: Callable[[TableWorld], object] = attrs.field(repr=False)
    refused: str | None = None
    remedy: Callable[[TableWorld], object] | None = attrs.field(default=None, repr=False)
    has_dead_letters: bool = False
    only: str = ""

    @property
    def outcome(self) -> str:
        """What the next dispatch does, in few words."""
        if self.refused is not None:
            return "refused" if self.remedy is None else "refused, until the remedy"
        return "lands, some as dead letters" if self.has_dead_letters else "lands"


_BEGUN: Final[dict[type, tuple[Path, Path]]] = {}
"""By contract, the folder of its tests, and a copy of what is in it when a state begins."""


class TableContract:
    """Subclass it for a format of tables, and define :meth:`land`, :meth:`rows` and :meth:`files`.

    :cvar states: :data:`STATES`, and those of the format
    """

    states: ClassVar[Sequence[TableState]] = ()

    def land(self, world: TableWorld) -> int:
        """Land all messages of ``world.store`` in ``world.table``; return the number of rows."""
        raise NotImplementedError

    def rows(self, world: TableWorld) -> Iterable[Key]:
        """The keys of all rows, by a reader that knows nothing of lakelog; not of lost files."""
        raise NotImplementedError

    def files(self, world: TableWorld) -> Iterable[Path]:
        """The data files that the table lists."""
        raise NotImplementedError

    def dead_letters(self, world: TableWorld) -> Iterable[Key]:  # noqa: ARG002  # a format with tables of dead letters reads them from it
        """The keys of all rows of the table of dead letters."""
        return ()

    def check(self, world: TableWorld) -> None:
        """Check what else the format promises; called when all has landed."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """One test for each state."""
        if "state" in metafunc.fixturenames:
            metafunc.parametrize("state", self.states, ids=[each.name for each in self.states])

    def _begun(self, folder: Path) -> Path:
        """Make what is in the folder of all tests of a class when a state begins; a copy of it."""
        world = self._world(folder)
        for number in range(_COMMITS):
            put(world.store, _EACH, number * _EACH)
            assert self.land(world) == _EACH
        return Path(shutil.copytree(folder, folder.with_name("begun"), symlinks=True))

    def _world(self, folder: Path) -> TableWorld:
        return TableWorld(folder, self.land, folder / "t", folder / "s")

    @pytest.fixture
    def world(self, tmp_path_factory: pytest.TempPathFactory) -> TableWorld:
        """The table and the store, as they were before any state; paths are always the same."""
        if type(self) not in _BEGUN:
            folder = tmp_path_factory.mktemp("tables") / "w"
            _BEGUN[type(self)] = (folder, self._begun(folder))
        folder, begun = _BEGUN[type(self)]
        shutil.rmtree(folder)
        shutil.copytree(begun, folder, symlinks=True)
        made = self._world(folder)
        made.stores[name_of(made.store)] = made.store
        return made

    def test_a_table_as_others_leave_it(self, state: TableState, world: TableWorld) -> None:
        state.act(world)
        if world.grows:
            put(world.store, LATER, 1000)
        kept = contents(*world.kept)
        if state.refused is not None:
            before = contents(world.table)
            with pytest.raises(LakelogError, match=state.refused) as found:
                self.land(world)
            assert "\n" not in str(found.value), "a sentence has one line"
            assert contents(world.table) == before, "a refused dispatch has changed the table"
        if state.remedy is not None:
            state.remedy(world)
        if state.refused is None or state.remedy is not None:
            self._lands(world, has_dead_letters=state.has_dead_letters)
        assert contents(*world.kept) == kept

    def _lands(self, world: TableWorld, *, has_dead_letters: bool) -> None:
        self.land(world)
        assert self.land(world) == 0, "all had landed before"
        dead, expected = Counter(self.dead_letters(world)), world.expected()
        found = Counter(self.rows(world)) + dead
        assert bool(dead) is has_dead_letters
        assert found - expected == Counter(), "rows too many"
        assert expected - found == Counter(), "messages without a row"
        listed = set(self.files(world))
        assert world.lost <= listed, "a file that somebody removed is listed no more"
        assert [each for each in listed - world.lost if not each.is_file()] == []
        self.check(world)


# --- what somebody does to a store ---


def _rename(world: TableWorld) -> None:
    world.goes_on_in(world.store.rename(world.folder / "renamed"))


def _copy(world: TableWorld) -> None:
    world.goes_on_in(copy_store(world.store, world.folder / "copy"))


def _disown(world: TableWorld) -> None:
    """Make the store one of RocketMQ, which has landed under its folder's name."""
    (world.store / OWN_DIR / STORE_FILE).unlink()
    world.stores = {world.store.name: world.store}
    world.anew()


def _rename_without_uuid(world: TableWorld) -> None:
    _disown(world)
    _rename(world)


def land_second(world: TableWorld) -> None:
    """Land another store in the same table."""
    other = world.folder / "other"
    put(other, 50)
    attrs.evolve(world, store=other).land()
    world.stores[name_of(other)] = other


def _restore(world: TableWorld) -> None:
    copy_store(world.store, world.folder / "backup")
    put(world.store, 50)
    world.land()
    shutil.rmtree(world.store)
    world.store = (world.folder / "backup").rename(world.store)
    world.grows = False


def _restore_and_go_on(world: TableWorld) -> None:
    _restore(world)
    put(world.store, 99, 5000)


def _make_anew(world: TableWorld) -> None:
    before = world.store.rename(world.folder / "before")
    world.stores = dict.fromkeys(world.stores, before)
    put(world.store, 240, 7)
    world.stores[name_of(world.store)] = world.store


def _make_anew_under_one_name(world: TableWorld) -> None:
    world.store_id = name_of(world.store)
    _make_anew(world)


def _remove_segments(world: TableWorld, count: int) -> None:
    before = world.messages()
    for start in range(count):
        (world.store / "commitlog" / segment_name(start * SEGMENT_BYTES)).unlink()
    world.added += Counter(before - world.messages())


def _remove_unlanded(world: TableWorld) -> None:
    put(world.store, 300)
    _remove_segments(world, len(list((world.store / "commitlog").iterdir())) - 1)


def _damage(world: TableWorld) -> None:
    place = max(each[-1] for each in world.messages())
    put(world.store, LATER)
    place = min(each[-1] for each in world.messages() if each[-1] > place)
    file = world.store / "commitlog" / segment_name(place // SEGMENT_BYTES * SEGMENT_BYTES)
    with file.open("r+b") as opened:
        os.pwrite(opened.fileno(), b"!", place % SEGMENT_BYTES + 4)
    world.grows = False


def _set_clock_ahead(world: TableWorld) -> None:
    def ahead() -> float:
        return time() + _AHEAD_SECONDS

    put(world.store, LATER)
    with mock.patch("time.time", ahead):
        world.land()
    for each in contents(world.table):
        os.utime(each, (each.stat().st_mtime + _AHEAD_SECONDS,) * 2)


# --- what somebody does to a table's folder ---


def _copy_table(world: TableWorld, copy: Callable[[str, str], object] = shutil.copy2) -> None:
    world.kept = [world.table]
    target = world.folder / "copied"
    world.table = Path(shutil.copytree(world.table, target, symlinks=True, copy_function=copy))


def _copy_table_and_go_on(world: TableWorld) -> None:
    original = world.table
    _copy_table(world)
    put(world.store, LATER)
    world.land()
    world.kept = [world.table]
    world.table = original


def move_table(world: TableWorld) -> None:
    """To another folder, in which it is dispatched."""
    world.table = world.table.rename(world.folder / "moved")


def _link_table(world: TableWorld) -> None:
    (world.folder / "link").symlink_to(world.table)
    world.table = world.folder / "link"


def _move_and_link_back(world: TableWorld) -> None:
    world.table.rename(world.folder / "disk").rename(world.folder / "other-disk")
    world.table.symlink_to(world.folder / "other-disk")


def _restore_table(world: TableWorld) -> None:
    backup = shutil.copytree(world.table, world.folder / "backup", symlinks=True)
    put(world.store, 50)
    world.land()
    shutil.rmtree(world.table)
    Path(backup).rename(world.table)


def _empty_table(world: TableWorld) -> None:
    shutil.rmtree(world.table)
    world.table.mkdir()


def _put_file_in_place(world: TableWorld) -> None:
    shutil.rmtree(world.table)
    world.table.write_text("no table")


def _put_files_beside(world: TableWorld) -> None:
    """Such as those of a desktop, of a job and of Hadoop."""
    for folder in [world.table, *(each for each in world.table.rglob("*") if each.is_dir())]:
        for name in (".DS_Store", "_SUCCESS", ".part-0.parquet.crc", "notes.txt"):
            (folder / name).write_text(name)
            world.kept.append(folder / name)


STATES: Final = (
    TableState("store-renamed", "renames the folder of the store", _rename),
    TableState("store-copied", "copies the store, and dispatches the copy", _copy),
    TableState("rocketmq-renamed", "renames RocketMQ's directory", _rename_without_uuid),
    TableState("rocketmq-owned", "writes into RocketMQ's directory by lakelog", _disown),
    TableState("second-store", "lands another store in the same table", land_second),
    TableState(
        "store-restored", "restores an older copy of the store", _restore, "no whole record is"
    ),
    TableState(
        "store-restored-and-grown",
        "restores an older copy of the store, which gets other messages",
        _restore_and_go_on,
        "is not the log whose rows are in",
    ),
    TableState("store-anew", "deletes the store and makes it again", _make_anew),
    TableState(
        "store-anew-under-one-name",
        "makes the store again, and lands it under the former name (--store-id)",
        _make_anew_under_one_name,
        "is not the log whose rows are in",
    ),
    TableState(
        "segments-removed", "removes segments that have landed", lambda w: _remove_segments(w, 2)
    ),
    TableState(
        "segments-removed-early",
        "removes segments that have not landed",
        _remove_unlanded,
        "were deleted before they landed",
    ),
    TableState("log-damaged", "damages a message that has not landed", _damage, "corrupt"),
    TableState("clock-set-back", "sets the clock of the machine back", _set_clock_ahead),
    TableState("table-copied", "copies the table, and lands in the copy", _copy_table),
    TableState(
        "table-copied-both-go-on", "copies the table, and lands in both", _copy_table_and_go_on
    ),
    TableState(
        "table-linked-copy",
        "copies the table by hard links, as backups do, and lands in the copy",
        lambda w: _copy_table(w, os.link),
    ),
    TableState("table-moved", "moves the table to another folder", move_table),
    TableState("table-by-link", "names the table by a symbolic link", _link_table),
    TableState("table-on-other-disk", "moves the table, and links it back", _move_and_link_back),
    TableState("table-restored", "restores an older copy of the table", _restore_table),
    TableState("table-removed", "removes the table", lambda w: shutil.rmtree(w.table)),
    TableState("table-emptied", "removes all files of the table", _empty_table),
    TableState(
        "table-is-a-file", "puts a file in the place of the table", _put_file_in_place, "w/t"
    ),
    TableState("files-beside", "leaves files of other programs in each folder", _put_files_beside),
)
"""What needs no knowledge of a format."""
