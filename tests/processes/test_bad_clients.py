"""Processes at the owner's socket that do what no producer does: only they are put out.

After each of them the owner still takes what others put, and closes in time.
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

import lakelog
from lakelog.layout import OWN_DIR
from tests.processes import misbehaving
from tests.processes.group import prepared
from tests.processes.member import SOCKET
from tests.processes.remote import Remote, RemoteError, remote
from tests.processes.words import STORE
from tests.support.killing import ROOT

ATTACH: Final = {"mode": "attach"}
OWNER: Final = {"mode": "owner"}
CLOSING_SECONDS: Final = 20.0
NOBODY: Final = 65534
DYING: Final = 3
MANY: Final = 400
"""More than a ring of this store holds."""


@attrs.define
class Scene:
    """An owner and a producer that behave.

    :ivar put: how many messages the producer has put
    """

    folder: Path
    owner: Remote
    good: Remote
    put: int = 0

    def check(self) -> None:
        """Both still work."""
        self.good.call("put", f"good-{self.put}")
        self.good.call("put_batch", [f"good-{self.put + 1}", f"good-{self.put + 2}"])
        self.put += 3
        self.owner.call("put", f"owner-{self.put}")

    def end(self) -> None:
        """The owner closes in time, and the log has it all, in order."""
        before = time.monotonic()
        self.owner.call("close")
        assert time.monotonic() - before < CLOSING_SECONDS
        with lakelog.open(self.folder / STORE, mode="read") as reader:
            keys = [str(each.properties["KEYS"]) for each in reader.scan()]
        found = [key for key in keys if key.startswith("good")]
        assert found == [f"good-{at}" for at in range(self.put)]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """One for all tests, which starts in a second or two."""
    folder = prepared(tmp_path_factory.mktemp("shared") / "g", flush="timed")
    with remote(folder / STORE) as owner, remote(folder / STORE) as good:
        owner.call("open", OWNER)
        good.call("open", ATTACH)
        found = Scene(folder, owner, good)
        yield found
        found.end()


@pytest.fixture
def scene(shared: Scene) -> Iterator[Scene]:
    """Before and after each test all is well."""
    shared.check()
    yield shared
    shared.check()


@pytest.fixture(scope="module")
def bad(shared: Scene) -> Iterator[Bad]:
    """A process that misbehaves as it is told."""
    with _misbehaving(shared) as process:
        yield process


@contextmanager
def _misbehaving(shared: Scene) -> Iterator[Bad]:
    command = [sys.executable, "-m", "tests.processes.misbehaving", str(shared.folder / STORE)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as process:
        try:
            yield Bad(process)
        finally:
            process.kill()


@attrs.frozen
class Bad:
    """Its orders; see :mod:`tests.processes.misbehaving`."""

    process: subprocess.Popen[str]

    def __call__(self, *order: Any) -> Any:
        """What came of it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


# --- who may come in ---


def test_another_protocol_is_refused_and_told_which(scene: Scene, bad: Bad) -> None:
    said = json.dumps(bad("hello", {"protocol": 99, "lakelog": "99.0"}))
    assert "protocol 99" in said, said


@pytest.mark.parametrize("said", misbehaving.HELLOS)
def test_nonsense_instead_of_a_hello_is_the_end(scene: Scene, bad: Bad, said: str) -> None:
    assert bad("say", said) == "end"


@pytest.mark.slow  # its patience
def test_who_says_nothing_is_put_out(scene: Scene, bad: Bad) -> None:
    assert bad("silent") == "end"


@pytest.mark.root
def test_another_user_is_refused(scene: Scene) -> None:
    if os.geteuid():
        pytest.skip("only root can become somebody else")
    own = scene.folder / STORE / OWN_DIR
    lock = scene.folder / STORE / "lock"
    socket_path, mode = own / SOCKET, (own / SOCKET).stat().st_mode
    with remote(scene.folder / STORE) as other, _open_to_all(own):
        other.call("open", ATTACH)  # as root, which imports what it needs
        other.call("close")
        other.call("become", NOBODY)
        with pytest.raises(RemoteError) as raised:
            other.call("open", ATTACH)
        assert "user" in str(raised.value)
        socket_path.chmod(0o666)  # then the owner itself looks who it is
        lock.chmod(0o644)
        with pytest.raises(RemoteError) as raised:
            other.call("open", ATTACH)
        assert raised.value.name == "AttachRefused"
        socket_path.chmod(mode)
        lock.chmod(0o600)


@contextmanager
def _open_to_all(folder: Path) -> Iterator[None]:
    """Anybody may go there and read, for a while."""
    before = {each: each.stat().st_mode for each in (folder, *folder.parents)}
    for each, mode in before.items():
        each.chmod(mode | 0o055)
    try:
        yield
    finally:
        for each, mode in before.items():
            each.chmod(mode)


def test_the_socket_is_its_users_alone(scene: Scene) -> None:
    assert (scene.folder / STORE / OWN_DIR / SOCKET).stat().st_mode & 0o077 == 0


# --- who is in ---


@pytest.mark.parametrize("how", misbehaving.RINGS)
def test_nonsense_in_a_ring_puts_its_process_out(scene: Scene, bad: Bad, how: str) -> None:
    _check_ring(scene, bad, how, 1)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("how", misbehaving.RINGS)
def test_much_nonsense_in_rings(scene: Scene, bad: Bad, how: str) -> None:
    for seed in range(50):
        _check_ring(scene, bad, how, seed)


def _check_ring(scene: Scene, bad: Bad, how: str, seed: int) -> None:
    said = bad("ring", how, seed)
    scene.check()
    assert said == "end" or how not in misbehaving.NOTICED, seed


def test_a_process_that_stops_reading_its_socket(scene: Scene) -> None:
    with _misbehaving(scene) as deaf:
        assert deaf("deaf") == "attached"
        for _ in range(20):
            scene.check()


def test_a_stopped_process_that_holds_entries(scene: Scene) -> None:
    with remote(scene.folder / STORE) as stopped:
        stopped.call("open", ATTACH)
        stopped.ask("put_async", [f"stopped-{at}" for at in range(MANY)])
        time.sleep(0.02)  # in the midst of it
        stopped.stop()
        scene.check()
        stopped.go()
        assert stopped.answer() == MANY
        places = stopped.call("settle")
    assert places == sorted(places)
    assert len(set(places)) == MANY


def test_a_stopped_process_does_not_keep_the_owner_from_closing(scene: Scene) -> None:
    with remote(scene.folder / STORE) as stopped:
        stopped.call("open", ATTACH)
        stopped.ask("put_async", [f"stopped-{at}" for at in range(MANY)])
        time.sleep(0.02)
        stopped.stop()
        scene.check()
        scene.end()
        scene.owner.call("open", OWNER)
        scene.check()


def test_a_full_ring_waits_for_the_owner(scene: Scene) -> None:
    with remote(scene.folder / STORE) as eager:
        eager.call("open", ATTACH)
        eager.call("put", "eager-0")
        scene.owner.stop()
        eager.ask("put_async", [f"eager-{at}" for at in range(1, MANY)])
        eager.ask("settle")
        time.sleep(0.5)
        scene.owner.go()
        eager.answer()
        places = eager.answer()
        assert len(set(places)) == MANY - 1
        assert places == sorted(places)
        found = [key for key in eager.call("keys") if key.startswith("eager")]
        assert found == [f"eager-{at}" for at in range(MANY)]


def test_a_process_that_dies_with_half_a_batch(scene: Scene) -> None:
    """Whatever of it had come into the ring: a batch is in the log whole, or not at all."""
    choose = random.Random(7)
    for at in range(DYING):
        with remote(scene.folder / STORE) as dying:
            dying.call("open", ATTACH)
            dying.ask("put_batch", [f"dying{at}-{number}" for number in range(60)])
            time.sleep(choose.uniform(0, 0.01))
            dying.kill()
        scene.check()
    with lakelog.open(scene.folder / STORE, mode="read") as reader:
        keys = [str(each.properties["KEYS"]) for each in reader.scan()]
    counts = [sum(key.startswith(f"dying{at}-") for key in keys) for at in range(DYING)]
    assert set(counts) <= {0, 60}, counts


def test_many_connections_that_do_nothing(scene: Scene) -> None:
    place = Path.cwd()
    os.chdir(scene.folder / STORE / OWN_DIR)
    with ExitStack() as stack:
        try:
            for _ in range(100):
                one = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                one.connect(SOCKET)
        finally:
            os.chdir(place)
        scene.check()
        with remote(scene.folder / STORE) as another:
            another.call("open", ATTACH)
            another.call("put", "another-0")
