"""Java clients of RocketMQ, compiled against the jars of the broker."""

from __future__ import annotations

import json
import queue
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, Final

import attrs

from lakelog_replication.address import Address
from tests.replication.masterbroker import jars, quick
from tests.support.javaprogram import java_program

PATIENCE_SECONDS: Final = 120.0
_HERE: Final = Path(__file__).parent


def java(program: str, *arguments: str, home: Path) -> list[str]:
    """The words that run a program of ``java/``; skips the test without a JDK or Maven."""
    sources = sorted((_HERE / "java").glob("*.java"))
    main = f"lakelog.takeover.{program}"
    return java_program(jars(), sources, main, *arguments, home=home, flags=quick())


@attrs.frozen
class Fails:
    """The bodies of messages that a member cannot handle.

    :ivar once: one that fails at first
    :ivar always: one that fails each time
    :ivar last: one that fails, and after which the member handles no other
    """

    once: int
    always: int
    last: int


@attrs.frozen
class JavaMember:
    """A running member of a group.

    :ivar lines: the messages that it got and that were not taken from here yet
    """

    lines: queue.SimpleQueue[dict[str, Any]]

    def next(self, count: int) -> list[dict[str, Any]]:
        """The next messages, in the order of their arrival."""
        return [self.lines.get(timeout=PATIENCE_SECONDS) for _ in range(count)]


@contextmanager
def java_member(
    server: Address, group: str, topic: str, fails: Fails, *, home: Path
) -> Iterator[JavaMember]:
    """A push consumer that leaves its group, and so commits, at the end."""
    arguments = str(server), group, topic, str(fails.once), str(fails.always), str(fails.last)
    with subprocess.Popen(
        java("GroupMember", *arguments, home=home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        member = JavaMember(queue.SimpleQueue())

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("{"):  # the client's own notes go there too
                    member.lines.put(json.loads(line))

        reader = Thread(target=read)
        reader.start()
        try:
            yield member
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(PATIENCE_SECONDS) == 0
        finally:
            process.kill()
            reader.join()
