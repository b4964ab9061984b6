"""What cannot be opened or put is refused with its reason, and no file is changed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lakelog
from core.tests.store.support import (
    SEGMENT,
    a_store,
    let_others_read,
    open_small,
    read_small,
    refused,
    segments,
    tree,
)
from lakelog import Message, PutRefused
from lakelog.errors import (
    BadSegment,
    LakelogError,
    NotAStore,
    OffsetOutOfRange,
    SettingsError,
    StoreError,
    StoreLocked,
)
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.identity import read_identity
from lakelog.format.record_batch import Damage
from lakelog.processes.membership import alone

NOBODY = 65534


def test_a_directory_with_other_files(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("work")
    with refused(tmp_path, NotAStore, str(tmp_path), "thesis.tex", "commitlog"):
        open_small(tmp_path)
    with refused(tmp_path, NotAStore, "thesis.tex"):
        read_small(tmp_path)


def test_a_store_that_another_owner_is_just_making(tmp_path: Path) -> None:
    """It holds something by then, and no log yet: that is no other directory."""
    (tmp_path / "consumequeue").mkdir()
    lock = alone(RealFileSystem(), tmp_path)
    with refused(
        tmp_path, StoreLocked, "has this store open and lets nobody in: it is RocketMQ, or repairs"
    ):
        open_small(tmp_path)
    lock.leave()
    with refused(tmp_path, NotAStore, "consumequeue"):
        open_small(tmp_path)


@pytest.mark.parametrize("mode", ["write", "read"])
def test_what_is_no_directory(mode: Any, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"no store")
    with refused(tmp_path, NotAStore, "a file", str(file)):
        lakelog.open(file, mode=mode, plugins=[])
    with refused(tmp_path, StoreError if mode == "write" else NotAStore, str(file)):
        lakelog.open(file / "store", mode=mode, plugins=[])


def test_what_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path):
        with refused(tmp_path, NotAStore, str(path)):
            read_small(path)


def test_an_unknown_mode(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'append'.*one of 'write', 'read', 'exclusive'"):
        lakelog.open(tmp_path, mode="append", plugins=[])  # type: ignore[arg-type]  # a wrong mode is the test


@pytest.mark.both_ways
def test_a_segment_of_odd_length(tmp_path: Path) -> None:
    results = a_store(tmp_path)
    cut = segments(tmp_path)[1]
    os.truncate(cut, 5000)
    with refused(tmp_path, BadSegment, str(cut), "on_damage") as caught:
        open_small(tmp_path, on_damage="refuse")
    assert isinstance(caught.value, BadSegment)
    assert SEGMENT < (caught.value.offset or 0) <= SEGMENT + 5000
    whole = [
        each.physical_offset
        for each in results
        if each.end_offset <= SEGMENT + 5000 or each.physical_offset >= 2 * SEGMENT
    ]
    with read_small(tmp_path, segment_size_bytes=SEGMENT) as store:
        damage: list[object] = []
        assert [each.physical_offset for each in store.scan(on_damage=damage.append)] == whole
    assert len(damage) == 1


@pytest.mark.both_ways
def test_a_gap_between_segments(tmp_path: Path) -> None:
    results = a_store(tmp_path)
    gone = segments(tmp_path)[1]
    gone.unlink()
    with refused(tmp_path, BadSegment, "missing between", segments(tmp_path)[0].name):
        open_small(tmp_path)
    damage: list[Damage] = []
    with read_small(tmp_path) as store:
        found = [each.physical_offset for each in store.scan(on_damage=damage.append)]
    there = [each.physical_offset for each in results]
    assert found == [each for each in there if not SEGMENT <= each < 2 * SEGMENT]
    assert [(each.offset, each.end_offset) for each in damage] == [(SEGMENT, 2 * SEGMENT)]


@pytest.mark.parametrize("name", ["notes.txt", "0", "00000000000000000000.bak"])
def test_a_stray_file(name: str, tmp_path: Path) -> None:
    a_store(tmp_path, 3)
    (tmp_path / "commitlog" / name).write_bytes(b"stray")
    with refused(tmp_path, BadSegment, name, "no segment"):
        open_small(tmp_path)
    with read_small(tmp_path) as store:
        assert len(list(store.scan())) == 3


def test_a_segment_of_odd_name(tmp_path: Path) -> None:
    a_store(tmp_path, 3)
    (last,) = segments(tmp_path)
    last.rename(last.with_name(f"{1:020d}"))
    with refused(tmp_path, BadSegment, "multiple"):
        open_small(tmp_path)


def test_another_segment_size_than_that_of_the_files(tmp_path: Path) -> None:
    a_store(tmp_path, 40)
    with refused(tmp_path, LakelogError, str(SEGMENT)):
        open_small(tmp_path, segment_size_bytes=2 * SEGMENT)


def test_a_second_owner_in_this_process(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        with refused(tmp_path, StoreLocked, str(os.getpid()), "mode='read'") as caught:
            open_small(tmp_path, mode="exclusive")
        assert isinstance(caught.value, StoreLocked)
        assert caught.value.owner_pid == os.getpid()
        store.put(Message("t", b"still mine"))
        with pytest.raises(StoreLocked):  # closing a descriptor of `lock` released nothing
            open_small(tmp_path, mode="exclusive")
    open_small(tmp_path).close()


def as_nobody(program: str) -> str:
    """Run a program for which permissions count, and give what it prints."""
    start = f"import os\nif os.getuid() == 0:\n    os.setgid({NOBODY})\n    os.setuid({NOBODY})\n"
    done = subprocess.run(
        [sys.executable, "-c", PRELOAD + start + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


PRELOAD = """
import numpy, tempfile, lakelog, lakelog.errors
with tempfile.TemporaryDirectory() as folder:
    for mode in ("write", "write", "read"):
        with lakelog.open(folder + "/store", mode=mode, plugins=[]) as store:
            if mode == "write":
                store.put(lakelog.Message("t", b"x", queue_id=0))
            list(store.scan())
"""


@pytest.fixture
def reachable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = Path("/tmp") / f"lakelog-permissions-{os.getpid()}"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("mode", ["write", "read"])
def test_what_we_may_not_read(mode: str, reachable: Path) -> None:
    path = reachable / "store"
    let_others_read(path)
    a_store(path)
    for each in segments(path):
        each.chmod(0)
    before = {name: tree(path)[name] for name in ("lock", "checkpoint")}
    said = as_nobody(f"""
        try:
            with lakelog.open({str(path)!r}, mode={mode!r}, plugins=[],
                              segment_size_bytes={SEGMENT}) as store:
                list(store.scan())
        except (lakelog.errors.StoreError, PermissionError) as error:
            print(type(error).__name__, error)
        """)
    assert "Permission denied" in said
    if mode == "write":
        assert said.startswith("StoreReadOnly")
        assert "check permissions" in said
    assert {name: tree(path)[name] for name in ("lock", "checkpoint")} == before
    assert not (path / "abort").exists()


def test_a_store_that_is_not_ours_to_write_says_how_to_read_it(reachable: Path) -> None:
    let_others_read(reachable / "store")
    a_store(reachable / "store", 3)
    said = as_nobody(f"""
        try:
            lakelog.open({str(reachable / "store")!r}, plugins=[])
        except lakelog.errors.StoreReadOnly as error:
            print(error)
        with lakelog.open({str(reachable / "store")!r}, plugins=[], mode="read") as store:
            print(len(list(store.scan())))
        """)
    assert "mode='read'" in said
    assert said.endswith("\n3\n")


def test_a_store_host_that_is_none(tmp_path: Path) -> None:
    with refused(tmp_path, SettingsError, "localhost"):
        open_small(tmp_path / "store", store_host="localhost")


@pytest.mark.parametrize(
    "left", [["abort"], ["lock"], ["abort.bak", "lock"], ["abort", "checkpoint"]]
)
def test_what_a_power_cut_left_of_a_store_that_held_nothing_is_begun_again(
    tmp_path: Path, left: list[str]
) -> None:
    path = tmp_path / "store"
    path.mkdir()
    for name in left:
        (path / name).write_bytes(b"")
    with open_small(path) as store:
        assert store.put(Message("t", b"first")).physical_offset == 0


def test_what_is_no_message(tmp_path: Path) -> None:
    """A mistake of types is an error at once, and hangs nobody who waits for a future."""
    nothing: Any = None
    with open_small(tmp_path) as store:
        log = tree(tmp_path / "commitlog")
        for put in (
            lambda: store.put(nothing),
            lambda: store.put_batch([nothing]),
            lambda: store.put_async(nothing).result(timeout=10),
        ):
            with pytest.raises((TypeError, AttributeError, ValueError, PutRefused)):
                put()
        assert tree(tmp_path / "commitlog") == log
        assert store.put_async(Message("t", b"next")).result(timeout=10).physical_offset == 0


@pytest.mark.both_ways
@pytest.mark.parametrize("mode", ["owner", "read"])
def test_looking_up_what_is_not_there(mode: str, tmp_path: Path) -> None:
    a_store(tmp_path, 3)
    with open_small(tmp_path) if mode == "owner" else read_small(tmp_path) as store:
        assert store.look_up("00" * 16).physical_offset == 0
        with pytest.raises(LakelogError):
            store.look_up(1)
        for where in (-1, 10**15, 2**70, "FF" * 16):
            with pytest.raises(OffsetOutOfRange):
                store.look_up(where)
        with pytest.raises(ValueError, match="message id"):
            store.look_up("no id")


FILES = RealFileSystem()


def written(path: Path, content: bytes) -> Path:
    file = path / "lakelog" / "store.json"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"null", "found 'null'"),
        (b"", "found nothing"),
        (b"[1]", "found '[1]'"),
        (b'{"version": 1,\n "uuid": 5}', """found '{"version": 1, "uuid": 5}'"""),
        (b"{}", "found '{}'"),
        (b"\xff", "found '\N{REPLACEMENT CHARACTER}'"),
        (b"[" * 100_000, "found '" + "[" * 60 + "...'"),
    ],
)
def test_a_damaged_one_says_what_was_expected_and_found(
    content: bytes, found: str, tmp_path: Path
) -> None:
    with pytest.raises(NotAStore) as caught:
        read_identity(FILES, written(tmp_path, content))
    expected = "expected an object with version, uuid and created_by_lakelog"
    assert f"store.json: it is damaged: {expected}, {found}; delete it" in str(caught.value)


def test_one_of_a_later_lakelog_is_left_alone(tmp_path: Path) -> None:
    content = json.dumps({"version": 2, "id": "something else"}).encode()
    with pytest.raises(NotAStore, match="version is 2; this lakelog knows 1"):
        read_identity(FILES, written(tmp_path, content))
