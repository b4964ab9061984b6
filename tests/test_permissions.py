"""Who can use the files of a store, and what is no file of it although it has the name of one."""

from __future__ import annotations

import grp
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
from lakelog import Message
from lakelog.errors import SettingsError
from lakelog.files.access import access_of
from lakelog.files.filesystem import RealFileSystem, overwrite_file
from lakelog.format.layout import LOCK_FILE
from lakelog.maintenance.pins import Pin, write_pin
from tests.support import required

SETTINGS: Final[dict[str, Any]] = {
    "segment_size_bytes": 16 << 10,
    "flush": "none",
    "consume-queue": {"file_entries": 50, "ext_enabled": True, "ext_file_size_bytes": 4096},
    "hash-index": {"slots": 100, "entries": 1000},
}
STRANGER: Final = 65534
GROUP: Final = next(each for each in grp.getgrall() if each.gr_gid not in (0, STRANGER))
"""One that this process may give files to, and a stranger is no member of."""
IMPORTS: Final = f"""
SETTINGS = {SETTINGS}
import fcntl, grp, numpy, os, struct, subprocess, sys, tempfile, lakelog, lakelog.errors
with tempfile.TemporaryDirectory() as folder:
    for mode in ("write", "write", "read"):  # new, existing, and beside another
        with lakelog.open(folder + "/store", mode=mode, **SETTINGS) as store:
            if mode == "write":
                store.put(lakelog.Message("t", b"x", keys="k", tags="a", queue_id=0))
                store.wait_dispatched()
            assert store.get("t", 0, 0).messages and list(store.query("t", "k"))
            store.consumer("g", "t", start="earliest").close()
            lakelog.open(folder + "/store", mode=mode, **SETTINGS).close()
"""
"""What another user may have no leave to read, such as the folder of this interpreter."""


def use(path: Path, **more: Any) -> None:
    """Do to a store all that makes, writes or reads files in it."""
    with lakelog.open(path, **SETTINGS, **more) as store:
        for topic in ("t", "gone"):
            keys = map("k{}".format, range(40))
            store.put_batch(
                [Message(topic, b"x" * 200, keys=key, tags="a", queue_id=0) for key in keys]
            )
            store.put(Message(topic, b"x", queue_id=7))
        assert store.wait_dispatched()
        with store.consumer("g", "t", start="earliest") as consumer:
            consumer.poll()
            consumer.commit()
        store.delete_topic("gone")
        store.flush()
    with lakelog.open(path, mode="read", **SETTINGS, **more) as store:
        assert list(store.scan())
        store.get("t", 0, 0)
        store.query("t", "k3")
        store.groups()


def modes(path: Path) -> set[tuple[str, int, int]]:
    """Kind, mode and group of all that is in a store, itself included."""
    return {
        ("folder" if each.is_dir() else "file", stat.S_IMODE(found.st_mode), found.st_gid)
        for each in (path, *path.rglob("*"))
        for found in [each.lstat()]
    }


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    before = os.umask(0)
    os.umask(before)
    yield os.umask
    os.umask(before)


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that any user can reach."""
    if os.geteuid() != 0:
        required.missing("only root can be another user")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


# --- modes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0, 0o077])
def test_a_new_store_is_its_users_alone(
    tmp_path: Path, umask: Callable[[int], int], mask: int
) -> None:
    umask(mask)
    use(tmp_path / "store")
    own, closed = os.getegid(), tmp_path / "store"
    assert modes(closed) == {("folder", 0o700, own), ("file", 0o600, own)}
    with lakelog.open(tmp_path / "open", **SETTINGS) as store:
        store.put(Message("t", b"x", keys="k"))
        assert store.wait_dispatched()
        write_pin(RealFileSystem.of_store(store.path), store.path, Pin("p", 0, 1))
        assert (store.path / "lakelog" / "shared").exists()
        assert modes(store.path) == modes(closed)


@pytest.mark.parametrize("mask", [0, 0o077])
def test_a_group_has_all_of_a_store(tmp_path: Path, umask: Callable[[int], int], mask: int) -> None:
    umask(mask)
    number = next((each for each in os.getgroups() if each != os.getegid()), os.getegid())
    name = grp.getgrgid(number).gr_name
    use(tmp_path / "store", group=name)
    assert modes(tmp_path / "store") == {("folder", 0o2770, number), ("file", 0o660, number)}
    use(tmp_path / "store")  # without the setting, `lock` says it, or `checkpoint`
    (tmp_path / "store" / LOCK_FILE).unlink()
    use(tmp_path / "store")
    assert modes(tmp_path / "store") == {("folder", 0o2770, number), ("file", 0o660, number)}


def test_an_older_store_or_folder_stays_as_it_is_and_goes_on_so(tmp_path: Path) -> None:
    path = tmp_path / "store"
    use(path)
    for each in (path, *path.rglob("*")):
        each.chmod(0o755 if each.is_dir() else 0o644)
    before = {each: each.stat().st_mode for each in path.rglob("*")}
    with lakelog.open(path, **SETTINGS) as store:
        for _ in range(200):
            store.put(Message("new", b"x" * 200, queue_id=0))
    now = {each: each.stat().st_mode for each in path.rglob("*")}
    assert len(now) > len(before)
    assert {**now, **before} == now
    assert {stat.S_IMODE(mode) for mode in now.values()} == {0o755, 0o644}
    new = tmp_path / "new"  # a folder that is there already keeps its mode
    new.mkdir(mode=0o755)
    use(new)
    assert stat.S_IMODE(new.stat().st_mode) == 0o755
    assert {mode for sub in new.iterdir() for _, mode, _ in modes(sub)} == {0o700, 0o600}


def test_a_group_that_nobody_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="there is no group 'no-such-group'"):
        lakelog.open(tmp_path / "store", group="no-such-group")
    assert not (tmp_path / "store").exists()


def test_lock_decides_only_where_it_is_a_file(tmp_path: Path) -> None:
    assert access_of(tmp_path).file_mode == 0o600
    other = tmp_path / "other"
    other.touch(mode=0o666)
    other.chmod(0o666)
    (tmp_path / LOCK_FILE).symlink_to(other)
    assert access_of(tmp_path).file_mode == 0o600


# --- another user ------------------------------------------------------------------------------


def as_user(program: str, *arguments: object, groups: tuple[int, ...] = ()) -> str:
    """Run a program as another user; what it prints."""
    start = f"os.setgroups({list(groups)!r}); os.setgid({STRANGER}); os.setuid({STRANGER})\n"
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS + start + textwrap.dedent(program), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


TRIES: Final = """
def tried(what, do):
    try:
        do()
        print(what, "done")
    except (OSError, lakelog.LakelogError) as error:
        print(what, "refused" if "ermission denied" in str(error) else error)

def lock_shared():
    fd = os.open(path + "/lock", os.O_RDONLY)
    fcntl.fcntl(fd, 37, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 1, 0))  # F_OFD_SETLK

path = sys.argv[1]
tried("list", lambda: os.listdir(path))
tried("lock", lock_shared)
tried("log", lambda: open(path + "/commitlog/" + "0" * 20, "rb"))
tried("open", lambda: lakelog.open(path, mode="read", segment_size_bytes=16384).close())
tried("own", lambda: lakelog.open(path, segment_size_bytes=16384).close())
"""


@pytest.mark.root
@pytest.mark.parametrize("existing", [False, True], ids=["made by lakelog", "in a folder for all"])
def test_another_user_cannot_lock_or_read(reachable: Path, existing: bool) -> None:
    path = reachable / "store"
    if existing:
        path.mkdir()
        path.chmod(0o755)
    use(path)
    said = as_user(TRIES, path).split("\n")
    assert said[1:-1] == ["lock refused", "log refused", "open refused", "own refused"]
    assert existing or said[0] == "list refused"
    use(path)  # nobody keeps its owner out


@pytest.mark.root
def test_a_member_of_the_group_can_read_put_and_own(reachable: Path) -> None:
    path = reachable / "store"
    number = GROUP.gr_gid
    given: dict[str, Any] = {"group": GROUP.gr_name, **SETTINGS}
    put = """
        with lakelog.open(sys.argv[1], **SETTINGS) as store:
            print(store.role, store.put(lakelog.Message("t", b"theirs", queue_id=0)).queue_offset)
            for _ in range(100):  # through the end of a segment
                store.put(lakelog.Message("t", b"x" * 1000, queue_id=1))
        with lakelog.open(sys.argv[1], mode="read", **SETTINGS) as store:
            print([bytes(each.body) for each in store.get("t", 0, 0).messages])
        """
    with lakelog.open(path, **given) as store:
        store.put(Message("t", b"ours", queue_id=0))
        said = as_user(put, path, groups=(number,))
        assert said == "attach 1\n[b'ours', b'theirs']\n"
    said = as_user(put, path, groups=(number,))
    assert said == "owner 2\n[b'ours', b'theirs', b'theirs']\n"
    assert {(kind, mode, number) for kind, mode, _ in modes(path)} == modes(path)
    with lakelog.open(path, **given) as store:
        assert store.put(Message("t", b"ours", queue_id=0)).queue_offset == 3
    assert as_user(TRIES, path).split("\n")[0] == "list refused"


@pytest.mark.root
def test_who_is_not_in_the_group_cannot_give_files_to_it(reachable: Path) -> None:
    reachable.chmod(0o777)
    name = grp.getgrgid(0).gr_name
    said = as_user(
        """
        try:
            lakelog.open(sys.argv[1], group=sys.argv[2])
        except lakelog.errors.SettingsError as error:
            print(error)
        """,
        *(reachable / "store", name),
    )
    assert f"is no member of {name!r}" in said
    assert not (reachable / "store").exists()


@pytest.mark.root
def test_what_a_strangers_group_is_given_is_no_more_than_others_have(reachable: Path) -> None:
    given = (0o660, 0o644, 0o664, 0o640)
    for mode in given:
        lock = reachable / oct(mode) / LOCK_FILE
        lock.parent.mkdir()
        lock.touch()
        lock.chmod(mode)
    said = as_user(
        """
        from pathlib import Path
        from lakelog.files.access import access_of
        for each in sys.argv[2:]:
            print(oct(access_of(Path(sys.argv[1]) / each).file_mode))
        """,
        *(reachable, *map(oct, given)),
    )
    assert [int(each, 8) for each in said.split()] == [0o600, 0o644, 0o644, 0o600]


# --- in the place of a file --------------------------------------------------------------------


NEVER_REFUSED: Final = frozenset({"wake"})
"""Nothing depends on it: readers poll then, and the log of the process says why."""


def _link(victim: Path, place: Path) -> None:
    place.symlink_to(victim)


def _broken_link(victim: Path, place: Path) -> None:
    place.symlink_to(victim.with_name("nowhere"))


def _fifo(_victim: Path, place: Path) -> None:
    os.mkfifo(place)


@pytest.mark.parametrize("plant", [_link, _broken_link, _fifo])
def test_nothing_else_is_taken_for_a_file(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, plant: Callable[[Path, Path], None]
) -> None:
    used, victim = tmp_path_factory.mktemp("used") / "store", tmp_path / "victim"
    use(used)
    names = [each.relative_to(used) for each in used.rglob("*") if each.is_file()]
    assert {"lock", "checkpoint", "abort.bak"} <= set(map(str, names))
    refused = set()
    for name in [*names, Path("abort"), Path("lakelog/queues.1"), Path("lakelog/lakelog.toml")]:
        path = tmp_path / "store"
        shutil.copytree(used, path)
        victim.write_bytes(b"precious")
        (path / name).unlink(missing_ok=True)
        plant(victim, path / name)
        said = ""
        try:
            use(path)
        except lakelog.LakelogError as error:  # another error is not its own
            said = str(error)
            refused.add(name.name)
        assert not said or (name.name in said and re.search("symbolic link|FIFO", said)), name
        assert victim.read_bytes() == b"precious", name
        assert sorted(each.name for each in tmp_path.iterdir()) == ["store", "victim"]
        shutil.rmtree(path)
    assert {"lock", "checkpoint", "abort", "store.json", "shared", "0" * 20} <= refused
    assert not refused & NEVER_REFUSED


@pytest.mark.parametrize("plant", [_link, _broken_link, _fifo])
def test_a_file_that_is_about_to_be_renamed_is_no_link(
    tmp_path: Path, plant: Callable[[Path, Path], None]
) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    plant(victim, tmp_path / "queues.json.tmp")
    with pytest.raises(OSError, match=r"symbolic link.*queues\.json\.tmp|FIFO"):
        overwrite_file(RealFileSystem(), tmp_path / "queues.json.tmp", b"new")
    assert victim.read_bytes() == b"precious"


def test_folders_may_be_links(tmp_path: Path) -> None:
    other = tmp_path / "another disk"
    for name in ("store", "log", "consumequeue", "index", "config"):
        (other / name).mkdir(parents=True)
    (tmp_path / "store").symlink_to(other / "store")
    for name in ("consumequeue", "index", "config"):
        (other / "store" / name).symlink_to(other / name)
    (other / "store" / "commitlog").symlink_to(other / "log")
    for _ in range(2):
        use(tmp_path / "store")
    assert list((other / "log").iterdir())
    assert list((other / "consumequeue" / "t" / "0").iterdir())
    elsewhere: dict[str, Any] = {"commitlog_path": tmp_path / "elsewhere"}
    use(tmp_path / "second", **elsewhere)
    assert modes(tmp_path / "elsewhere") <= modes(tmp_path / "second")
