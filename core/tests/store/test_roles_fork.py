"""Children of a process that has a store open, and commits of consumers in several processes."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from core.tests.store.support import a_store, bodies, open_small, read_small
from core.tests.store.workers import a_worker, an_owner
from lakelog import Consumer, Message, Store
from lakelog.errors import SettingsError, StoreError
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.layout import LOCK_FILE
from lakelog.processes.ownership import is_owned
from lakelog_testing.contracts.writer import open_files, open_in
from tests.support.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
FILES = RealFileSystem()
ATTACH = {"on_fork": "attach"}
CHILD_SECONDS = 30


def in_a_child(work: Callable[[], object]) -> object:
    """What ``work`` gives in a forked process, as text."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(CHILD_SECONDS)
        try:
            said = str(work())
        except BaseException as error:  # noqa: BLE001  # the parent is told
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def put(store: Store, body: bytes) -> int:
    return store.put(Message("t", body, queue_id=0)).queue_offset


def test_a_forked_child_keeps_no_owner_alive(tmp_path: Path) -> None:
    """The locks are the owner's alone."""
    with a_worker(tmp_path) as owner:
        owner.hear()
        with open_small(tmp_path) as store:
            put(store, b"0")
            child = owner.ask("fork")["child"]
            try:
                owner.kill()
                assert Path(f"/proc/{child}/cmdline").read_bytes()
                assert put(store, b"1") == 1
                until(lambda: store.role == "owner")
            finally:
                os.kill(child, signal.SIGKILL)


def test_what_is_started_by_an_owner_keeps_nothing_open(tmp_path: Path) -> None:
    sleeping = [sys.executable, "-c", "import time; time.sleep(60)"]
    with open_small(tmp_path) as store, subprocess.Popen(sleeping) as program:
        put(store, b"0")
        spawned = multiprocessing.get_context("spawn").Process(target=signal.pause, daemon=True)
        forked = multiprocessing.get_context("fork").Process(target=signal.pause, daemon=True)
        for child in (spawned, forked):
            child.start()
        store.close()
        try:
            assert not is_owned(FILES, tmp_path)
            for pid in (program.pid, spawned.pid):
                assert pid is not None
                assert open_in(tmp_path, pid) == []
        finally:
            program.kill()
            for child in (spawned, forked):
                child.kill()
                child.join()


def test_an_owner_that_closes_need_not_wait_for_a_child_that_is_just_beginning(
    tmp_path: Path,
) -> None:
    """The child has the descriptors until it has closed them, which may be after the close."""
    store = open_small(tmp_path)
    lock = os.path.realpath(tmp_path / LOCK_FILE)
    held = [os.dup(number) for number, name in open_files() if name == lock]
    try:
        assert len(held) == 1
        store.close()
        assert not is_owned(FILES, tmp_path)
        with open_small(tmp_path):
            assert is_owned(FILES, tmp_path)
    finally:
        for each in held:
            os.close(each)


@pytest.mark.parametrize("role", ["owner", "attach"])
def test_a_child_is_refused(tmp_path: Path, role: str) -> None:
    with open_small(tmp_path) as owner:
        store = owner if role == "owner" else open_small(tmp_path)
        put(store, b"0")
        bound = store.put
        for work in (
            lambda: put(store, b"child"),
            lambda: bound(Message("t", b"child")),
            lambda: store.put_batch([Message("t", b"child")]),
            lambda: store.put_async(Message("t", b"child")),
            store.flush,
            lambda: store.get("t", 0, 0),
            lambda: list(store.scan()),
            lambda: store.delete_topic("t"),
        ):
            said = in_a_child(work)
            assert str(said).startswith(("PutRefused", "StoreClosed")), said
            assert "forked" in str(said)
        assert in_a_child(store.close) == "None"
        assert (tmp_path / "abort").exists()
        assert put(store, b"1") == 1
        assert bodies(store.scan()) == [b"0", b"1"]
        store.close()


@pytest.mark.parametrize("role", ["owner", "attach"])
def test_a_child_attaches_where_that_is_set(tmp_path: Path, role: str) -> None:
    with open_small(tmp_path, attach=ATTACH) as owner:
        store = owner if role == "owner" else open_small(tmp_path, attach=ATTACH)
        put(store, b"0")

        def work() -> tuple[str, int, list[bytes], int]:
            first = put(store, b"child")
            found = bodies(store.scan()), len(store.get("t", 0, 0).messages)
            role = store.role
            store.close()
            return (role, first, *found)

        assert in_a_child(work) == str(("attach", 1, [b"0", b"child"], 2))
        assert put(store, b"1") == 2
        assert bodies(store.scan()) == [b"0", b"child", b"1"]
        store.close()


def test_children_of_an_attached_store_append_by_themselves(tmp_path: Path) -> None:
    with a_worker(tmp_path) as owner, ExitStack() as stack:
        assert owner.hear() == {"role": "owner"}
        store = stack.enter_context(open_small(tmp_path, attach=ATTACH))
        pending = [store.put_async(Message("t", b"p%d" % n, queue_id=0)) for n in range(50)]
        children = [forked(partial(put_fifty, store, name)) for name in (b"a", b"b")]
        pending += [store.put_async(Message("t", b"q%d" % n, queue_id=0)) for n in range(50)]
        assert [os.waitpid(each, 0)[1] for each in children] == [0, 0]
        for each in pending:
            each.result(20)
        found = bodies(store.scan())
    assert len(found) == 200
    assert [each for each in found if each[:1] in b"pq"] == [
        *(b"p%d" % n for n in range(50)),
        *(b"q%d" % n for n in range(50)),
    ]
    assert (found.count(b"a"), found.count(b"b")) == (50, 50)


def put_fifty(store: Store, body: bytes) -> None:
    for _ in range(50):
        put(store, body)


def forked(work: Callable[[], Any]) -> int:
    """A child that does something, and ends well if that did."""
    child = os.fork()
    if not child:
        signal.alarm(CHILD_SECONDS)
        ended = 1
        try:
            work()
            ended = 0
        finally:
            os._exit(ended)
    return child


def test_a_child_takes_over_from_its_parent(tmp_path: Path) -> None:
    """A pre-fork server whose master opened the store, and dies before its worker puts."""
    reading, writing = os.pipe()

    def serve() -> None:
        store = open_small(tmp_path, attach=ATTACH)
        put(store, b"master")
        if os.fork():
            os.kill(os.getpid(), signal.SIGKILL)
        signal.alarm(CHILD_SECONDS)
        while is_owned(FILES, tmp_path):
            time.sleep(0.001)
        said = put(store, b"worker"), store.role
        store.close()
        os.write(writing, str(said).encode())
        os._exit(0)

    os.waitpid(forked(serve), 0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == str((1, "owner"))
    with read_small(tmp_path) as store:
        assert bodies(store.scan()) == [b"master", b"worker"]


def test_a_reader_goes_on_in_a_child(tmp_path: Path) -> None:
    a_store(tmp_path, 3)
    with read_small(tmp_path) as store:
        assert len(bodies(store.scan())) == 3

        def work() -> tuple[int, int, str]:
            return len(bodies(store.scan())), len(store.get("t", 0, 0).messages), store.role

        assert in_a_child(work) == str((3, 3, "read"))


FILE = Path("config/consumerOffset.json")
QUEUE = 0


def put_many(store: Store, count: int, queue_id: int = QUEUE) -> None:
    store.put_batch([Message("t", b"%d" % n, queue_id=queue_id) for n in range(count)])
    assert store.wait_dispatched()


def a_member(store: Store, queue_id: int = QUEUE, **more: Any) -> Consumer:
    return store.consumer("g", "t", [queue_id], start="earliest", **more)


def kept(path: Path) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = json.loads((path / FILE).read_text())["offsetTable"]
    return found


def read(consumer: Consumer, count: int) -> int:
    left = count
    while left:
        left -= len(consumer.poll(left, wait_ms=10_000))
    return consumer.position(QUEUE)


def test_the_owner_keeps_them_and_all_see_them(tmp_path: Path) -> None:
    with an_owner(tmp_path) as owner, open_small(tmp_path) as store:
        put_many(store, 10)
        consumer = a_member(store)
        assert read(consumer, 4) == 4
        consumer.commit()
        assert kept(tmp_path) == {"t@g": {"0": 4}}
        assert owner.ask("store.groups()") == {"is_": {"g": {"t": {"0": 4}}}}
        assert store.groups() == {"g": {"t": {0: 4}}}
        assert consumer.committed() == {0: 4}
        assert owner.ask("store.wait_dispatched()") == {"is_": True}  # else the queue may end at 0
        owner.ask("store.consumer('other', 't', [0], start='earliest').reset(7)")
        consumer.reset("latest")
        consumer.reset(2)
        with read_small(tmp_path) as reader:
            assert reader.groups() == {"g": {"t": {0: 2}}, "other": {"t": {0: 7}}}
        assert store.role == "attach"
        assert owner.ask("store.consumer('g', 't', [0]).position(0)") == {"is_": 2}


@pytest.mark.parametrize("ended", ["killed", "closed"])
def test_commits_go_on_where_the_owner_is_gone(tmp_path: Path, ended: str) -> None:
    with an_owner(tmp_path) as owner, open_small(tmp_path) as store:
        put_many(store, 10)
        consumer, batch = a_member(store), store.consumer("b", "t", start="latest", commit="batch")
        read(consumer, 3)
        consumer.commit()
        assert owner.ask("store.wait_dispatched()") == {"is_": True}
        owner.ask("store.consumer('other', 't', [0], start='earliest').reset(5)")
        owner.kill() if ended == "killed" else owner.ask("close")
        read(consumer, 2)
        consumer.commit()
        assert kept(tmp_path) == {"t@g": {"0": 5}, "t@other": {"0": 5}}
        put_many(store, 1)
        assert len(batch.poll(wait_ms=10_000)) == 1
        batch.close()
        read(consumer, 6)
        consumer.commit()
        assert store.groups()["g"] == {"t": {0: 11}}
        assert store.groups()["b"]["t"][0] == 11


def test_members_are_killed_between_commits(tmp_path: Path) -> None:
    """Nothing that was committed is lost, by whichever member, and none has to try again."""
    with ExitStack() as stack:
        members = [stack.enter_context(a_worker(tmp_path)) for _ in range(4)]
        assert [member.hear()["role"] for member in members].count("owner") == 1
        with open_small(tmp_path) as store:
            for queue in range(4):
                put_many(store, 20, queue)
        for queue, member in enumerate(members):
            member.ask(f"(c := store.consumer('g', 't', [{queue}], start='earliest')).group")
        living = {0, 1, 2, 3}
        for reached in (5, 10, 15):
            for number in living:
                members[number].say("[(len(c.poll(1)), c.commit())[0] for _ in range(5)]")
            dying = min(living)  # the owner first
            time.sleep(0.02)
            members[dying].kill()
            living.remove(dying)
            for number in living:
                assert members[number].hear() == {"is_": [1] * 5}
                assert kept(tmp_path)["t@g"][str(number)] == reached


def test_what_cannot_be_kept_is_refused_and_the_rest_goes_on(tmp_path: Path) -> None:
    with an_owner(tmp_path) as owner, open_small(tmp_path) as store:
        put_many(store, 3)
        odd = store.consumer("g", "a/b", [0])
        with pytest.raises(SettingsError, match="cannot name a directory"):
            odd.commit()
        far = a_member(store)
        far.seek(0, 1 << 63)
        with pytest.raises(StoreError, match="queue 0 cannot have offset 9223372036854775808"):
            far.commit()
        far.reset("latest")
        (tmp_path / "config").rename(tmp_path / "former")
        (tmp_path / "config").write_text("in the way")
        with pytest.raises(StoreError, match="could not be written"):
            far.reset("earliest")
        (tmp_path / "config").unlink()
        far.reset("earliest")
        assert owner.ask("store.groups()") == {"is_": {"g": {"t": {"0": 0}}}}


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("role", ["owner", "attach"])
def test_a_forked_child_commits_by_its_own_way_or_not_at_all(tmp_path: Path, role: str) -> None:
    with ExitStack() as stack:
        if role == "attach":
            stack.enter_context(an_owner(tmp_path))
        refused = stack.enter_context(open_small(tmp_path))
        put_many(refused, 10)
        before = a_member(refused)
        before.reset(1)
        said = in_a_child(lambda: before.reset(2))
        assert str(said).startswith("StoreClosed: this process was forked")
        assert kept(tmp_path) == {"t@g": {"0": 1}}
        refused.close()
        store = open_small(tmp_path, attach={"on_fork": "attach"})
        stack.enter_context(store)
        member = a_member(store)
        assert in_a_child(lambda: a_member(store).reset(3)) == "None"
        assert member.committed() == {0: 3}
        assert in_a_child(lambda: member.reset(4)) == "None"
        member.reset(5)
        assert kept(tmp_path) == {"t@g": {"0": 5}}
