"""The keys of ``lakelog top``, pressed on a real terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs
import pytest

import lakelog as core
from lakelog_cli.commands.top import ORDERS, Controls

WAIT_SECONDS: Final = 300
pytestmark = pytest.mark.timeout(600)  # a loaded machine takes a minute to start a program
ROWS: Final = [{"group": "b", "topic": "t", "behind": 9}, {"group": "a", "topic": "t", "behind": 1}]


@attrs.define
class Screen:
    """A terminal with a program on it.

    :ivar shown: all that the program has written so far
    """

    terminal: int
    program: subprocess.Popen[bytes]
    shown: str = ""

    def type(self, keys: str) -> None:
        os.write(self.terminal, keys.encode())

    def frame(self) -> str:
        """Its last whole frame, without colours."""
        frames = self.shown.split("\x1b[H")
        return re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", frames[-2] if len(frames) > 2 else "")

    def until(self, *texts: str, without: str | None = None) -> None:
        """Read until a frame has all of the texts, and not the other one."""
        while not all(each in self.frame() for each in texts) or (
            without is not None and without in self.frame()
        ):
            ready, _, _ = select.select([self.terminal], [], [], WAIT_SECONDS)
            assert ready, (texts, self.frame())
            self.shown += os.read(self.terminal, 65536).decode(errors="replace")

    def ended(self) -> int:
        """Read until the program has ended; return its exit code."""
        while self.program.poll() is None:
            if select.select([self.terminal], [], [], 0.05)[0]:
                self.shown += os.read(self.terminal, 65536).decode(errors="replace")
        return self.program.returncode


@contextmanager
def watched(store: Path, *, has_keys: bool = True) -> Iterator[tuple[Screen, int]]:
    """Run top on a terminal; yield the screen, and the program's end of the terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    command = [sys.executable, "-m", "lakelog_cli.main", "top", str(store), "--interval", "0.2"]
    program = subprocess.Popen(
        command,
        stdin=theirs if has_keys else subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
    )
    try:
        yield Screen(ours, program), theirs
    finally:
        program.kill()
        program.wait()
        os.close(ours)
        os.close(theirs)


@pytest.fixture
def shop(store: Path) -> Iterator[Path]:
    """A running store with two groups."""
    with core.open(store) as opened:
        for group, count in (("billing", 1), ("shipping", 2)):
            with opened.consumer(group, "orders", start="earliest") as consumer:
                assert len(consumer.poll(count)) == count
                consumer.commit()
        yield store


def test_keys_order_filter_and_quit(shop: Path) -> None:
    with watched(shop) as (screen, theirs):
        former = termios.tcgetattr(theirs)
        screen.until("s order: as listed", "/ filter: none", "billing", "shipping")
        screen.type("s")
        screen.until("s order: name", "billing", "shipping")
        screen.type("/ship")
        screen.until("/ filter: ship_", "shipping", without="billing")
        screen.type("\r")
        screen.until("/ filter: ship ", "shipping", without="billing")
        screen.type("\x1b[A")  # an arrow
        screen.type("\x1b")
        screen.until("/ filter: none", "billing")
        screen.type("q")
        assert screen.ended() == 0
        assert termios.tcgetattr(theirs) == former


def test_without_a_keyboard_it_watches_until_it_is_interrupted(shop: Path) -> None:
    with watched(shop, has_keys=False) as (screen, _):
        screen.until("billing", "shipping")
        screen.program.send_signal(signal.SIGINT)
        assert screen.ended() == 130


def test_rows_are_arranged() -> None:
    expected = {"": "ba", "s": "ab", "ss": "ba", "sss": "ba", "/A\r": "a", "/ax\x7f": "a"}
    for keys, groups in expected.items():
        controls = Controls()
        controls.press(keys)
        found = controls.arranged({"groups": ROWS, "members": None})
        assert "".join(row["group"] for row in found["groups"]) == groups, keys
        assert (controls.is_done, found["members"]) == (False, None)
    controls = Controls()
    controls.press("s" * len(ORDERS))
    assert controls.order == ORDERS[0]
