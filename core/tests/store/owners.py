"""An owner in a process of its own, which does what it is told."""

from __future__ import annotations

import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from core.tests.store.support import SEGMENT

OWNER = f"""
import sys
import lakelog
store = lakelog.open(sys.argv[1], plugins=[], flush=sys.argv[2], segment_size_bytes={SEGMENT},
                     preallocate=False)
print("open", flush=True)
for line in sys.stdin:
    word, count = line.split()
    for number in range(int(count)):
        store.put(lakelog.Message("t", b"%06d" % number + bytes(394), queue_id=0))
    if word == "sync":
        store._owned.log.sync()
    if word == "advance":
        store._owned.checkpoint.advance()
    print(store.max_offset, store.flushed_offset, flush=True)
store.close()
"""


@attrs.frozen
class Owner:
    """An owner in a process of its own."""

    process: subprocess.Popen[str]

    def ask(self, what: str, count: int = 0) -> tuple[int, int]:
        """Let it put, and tell ``max_offset`` and ``flushed_offset``."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what} {count}\n")
        self.process.stdin.flush()
        end, flushed = self.line().split()
        return int(end), int(flushed)

    def line(self) -> str:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], 30)
        assert ready, "the owner does not answer"
        return self.process.stdout.readline()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)


@contextmanager
def an_owner(path: Path, flush: str = "none") -> Iterator[Owner]:
    command = [sys.executable, "-c", OWNER, str(path), flush]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        owner = Owner(process)
        try:
            assert owner.line() == "open\n"
            yield owner
        finally:
            process.kill()
