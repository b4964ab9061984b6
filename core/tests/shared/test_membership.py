"""Who shares a store: the first recovers, the last closes, and RocketMQ is never beside them."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakelog.errors import StoreLocked
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.shared.membership import Membership
from lakelog.format.layout import LOCK_CONTENT

FILES = RealFileSystem()
MEMBER = """
import sys
from pathlib import Path
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.shared.membership import Membership
member = Membership.join(RealFileSystem(), Path(sys.argv[1]), 60)
print(member.is_alone, flush=True)
sys.stdin.readline()
member.let_in()
print("in", flush=True)
sys.stdin.readline()
print(member.part(60), flush=True)
sys.stdin.readline()
"""


def join(path: Path, timeout_s: float = 0) -> Membership:
    return Membership.join(FILES, path, timeout_s)


@contextmanager
def another(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that joins, and is killed in the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", MEMBER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go_on(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return hear(process)


def test_the_first_is_alone_and_others_come_when_it_lets_them_in(tmp_path: Path) -> None:
    one = join(tmp_path)
    assert one.is_alone
    with pytest.raises(StoreLocked, match="it recovers, or hangs"):
        join(tmp_path)
    one.let_in()
    other = join(tmp_path)
    assert not other.is_alone
    other.let_in()
    assert (tmp_path / "lock").read_bytes() == LOCK_CONTENT
    assert not one.part(0)
    one.leave()
    one.leave()
    assert other.part(0)
    other.leave()


def test_the_living_and_the_killed(tmp_path: Path) -> None:
    """A process that is killed lets the next one be alone, or not, as others live or do not."""
    with another(tmp_path) as first:
        assert hear(first) == "True"
        assert go_on(first) == "in"
        with another(tmp_path) as second:
            assert hear(second) == "False"
            kill(first)
            with pytest.raises(StoreLocked):
                join(tmp_path)
            assert go_on(second) == "in"
            third = join(tmp_path, 60)
            assert not third.is_alone
            third.leave()
        fourth = join(tmp_path)
        assert fourth.is_alone
        fourth.leave()


def test_a_process_that_dies_while_it_recovers_or_closes(tmp_path: Path) -> None:
    with another(tmp_path) as first:
        assert hear(first) == "True"
        kill(first)
    with another(tmp_path) as second:
        assert hear(second) == "True"
        assert go_on(second) == "in"
        assert go_on(second) == "True"
        with pytest.raises(StoreLocked):
            join(tmp_path)
    after = join(tmp_path)
    assert after.is_alone
    after.leave()


def test_another_program_with_byte_0(tmp_path: Path) -> None:
    """As Java locks it: by POSIX, exclusively."""
    (tmp_path / "abort").write_text("4711")
    with (tmp_path / "lock").open("w") as java:
        fcntl.lockf(java, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        with pytest.raises(
            StoreLocked,
            match="another process has this store open and lets nobody in: it is RocketMQ",
        ) as caught:
            join(tmp_path)
        assert caught.value.owner_pid == 4711
    member = join(tmp_path)
    with (tmp_path / "lock").open("r+") as java:
        for _ in range(2):
            with pytest.raises(BlockingIOError):
                fcntl.lockf(java, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            member.let_in()
        member.leave()
        fcntl.lockf(java, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)


def test_a_join_that_is_cut_short_leaves_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(_self: Membership, _at: int, _kind: int) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Membership, "_set", cut)
        with pytest.raises(KeyboardInterrupt):
            join(tmp_path)
    member = join(tmp_path)
    assert member.is_alone
    member.leave()
