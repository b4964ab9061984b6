"""The owner's socket: its name, its mode, and what is left of a dead owner."""

from __future__ import annotations

import grp
import os
import socket
import stat
from pathlib import Path

import pytest

from core.tests.attach.support import (
    a_peer,
    a_program,
    an_owned_hub,
    an_owner,
    hub_of,
    open_alone,
)
from lakelog import Message
from lakelog.attach.peer import Peer
from lakelog.attach.place import SOCKET_FILE, is_socket
from lakelog.attach.producer import connect
from lakelog.errors import AttachRefused, NoOwner, SettingsError

STRANGER = """
import os, socket, sys
os.chdir(sys.argv[1])
os.setgroups([])
os.setgid(54321)
os.setuid(54321)
peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
peer.connect("owner.sock")
print(peer.recv(1000), flush=True)
"""


def socket_of(path: Path) -> Path:
    return path / "lakelog" / SOCKET_FILE


def test_a_path_of_any_length_will_do(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a-folder-with-a-long-name"] * 8)
    deep.mkdir(parents=True)
    with an_owned_hub(deep):
        producer = connect(deep)
        assert producer.put(Message("t", b"x")).queue_offset == 0
        producer.close()
    assert len(str(socket_of(deep))) > 200


def test_only_its_own_user_may_use_it(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        with an_owned_hub(tmp_path):
            assert stat.S_IMODE(socket_of(tmp_path).stat().st_mode) == 0o600
    finally:
        os.umask(old)


def test_a_group_may_use_it_if_the_settings_say_so(tmp_path: Path) -> None:
    own = grp.getgrgid(os.getgid()).gr_name
    old = os.umask(0o077)
    try:
        with an_owned_hub(tmp_path, group=own):
            found = socket_of(tmp_path).stat()
            assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o660, os.getgid())
    finally:
        os.umask(old)


def test_a_group_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no group 'nobody-has"):
        open_alone(tmp_path / "store", group="nobody-has-it")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("uid", "groups", "may"),
    [(0, {7}, True), (os.geteuid(), {7}, True), (12345, {7}, False), (12345, {5, 6}, True)],
)
def test_who_may_attach(uid: int, groups: set[int], may: bool) -> None:
    assert Peer(1, uid, frozenset(groups)).may_attach(6) is may
    assert not Peer(1, 12345, frozenset(groups)).may_attach(None)


def test_the_kernel_says_who_it_is() -> None:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with one, other:
        peer = Peer.of(one)
    assert (peer.pid, peer.uid) == (os.getpid(), os.geteuid())
    assert peer.groups >= {os.getegid(), *os.getgroups()}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "lock").touch(mode=0o644)  # everybody may read what is made here
    with an_owned_hub(tmp_path):
        socket_of(tmp_path).chmod(0o666)  # as if the files' modes did not hold
        with a_program(STRANGER, socket_of(tmp_path).parent) as stranger:
            said = stranger.line()
    assert "user 54321 may not attach" in said


@pytest.mark.parametrize(("uid", "verified"), [(os.geteuid(), False), (12345, True)])
def test_bodies_of_another_user_are_verified(tmp_path: Path, uid: int, verified: bool) -> None:
    with an_owned_hub(tmp_path) as (_, hub):
        descriptor, reader = hub._ring(Peer(1, uid, frozenset()))
        os.close(descriptor)
        assert reader.checks.verify_bodies is verified


def test_nobody_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(NoOwner, match="no owner lets others attach"):
        connect(tmp_path)
    with open_alone(tmp_path), pytest.raises(NoOwner, match="no owner lets others attach"):
        connect(tmp_path)


def test_the_socket_of_a_dead_owner_is_seen_and_replaced(tmp_path: Path) -> None:
    with an_owner(tmp_path) as owner:
        owner.kill()
        assert is_socket(tmp_path)
        with pytest.raises(NoOwner, match="its owner is gone"):
            connect(tmp_path)
        with an_owned_hub(tmp_path):
            a_peer(tmp_path).close()
        assert not is_socket(tmp_path)


def test_whatever_stands_in_its_place_is_replaced(tmp_path: Path) -> None:
    with open_alone(tmp_path) as store:
        socket_of(tmp_path).write_text("no socket")
        (tmp_path / "lakelog" / "owner.sock.new").write_text("nor this")
        hub = hub_of(store)
        hub.start()
        a_peer(tmp_path).close()
        hub.close()


def test_an_owner_with_another_append_callback_says_so(tmp_path: Path) -> None:
    import attrs

    with open_alone(tmp_path) as store:
        hub = hub_of(store)
        hub._core = attrs.evolve(hub._core, append="mine")
        hub.start()
        with pytest.raises(AttachRefused, match="append callback 'mine'"):
            connect(tmp_path)
        hub.close()
