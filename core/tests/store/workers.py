"""Processes that open one store in a role; what they do is in :mod:`core.tests.store.worker`."""

from __future__ import annotations

import json
import select
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

from core.tests.store.support import SEGMENT
from tests.support import forked

PATIENCE_SECONDS: Final = 30
SERVE: Final = "serve"
"""The mode of who has the services from the beginning, or is refused."""
SMALL: Final[Mapping[str, Any]] = {
    "plugins": [],
    "flush": "none",
    "segment_size_bytes": SEGMENT,
    "preallocate": False,
}


@attrs.frozen
class Worker:
    """A process that has, or wanted to have, a store open."""

    process: forked.Forked

    def say(self, word: str, *rest: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([word, *rest]) + "\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE_SECONDS)
        assert ready, "the worker does not answer"
        said: dict[str, Any] = json.loads(self.process.stdout.readline() or "{}")
        return said

    def ask(self, word: str, *rest: Any) -> dict[str, Any]:
        self.say(word, *rest)
        return self.hear()

    def ends(self, word: str, *rest: Any) -> tuple[int, int]:
        """The same; ``max_offset`` and ``flushed_offset`` after that."""
        assert "error" not in self.ask(word, *rest)
        end, flushed = self.ask("(store.max_offset, store.flushed_offset)")["is_"]
        return end, flushed

    def kill(self) -> None:
        """Let it die as by a power cut of its own."""
        self.process.kill()
        self.process.wait(PATIENCE_SECONDS)


@contextmanager
def worker(path: Path, **given: Any) -> Iterator[Worker]:
    """One with the arguments of :func:`lakelog.open`; it says its role first, or an error.

    Its ``at`` is the time of ``time.monotonic``, the same in every process, at which it opens.
    """
    program = "core.tests.store.worker"
    with forked.start(program, [str(path), json.dumps({"mode": "write", **given})]) as process:
        try:
            yield Worker(process)
        finally:
            process.kill()


@contextmanager
def a_worker(path: Path, mode: str = "write", **settings: Any) -> Iterator[Worker]:
    """One whose store has small segments, and no plugins."""
    with worker(path, mode=mode, **{**SMALL, **settings}) as made:
        yield made


@contextmanager
def an_owner(path: Path, **settings: Any) -> Iterator[Worker]:
    with a_worker(path, **settings) as made:
        assert made.hear() == {"role": "owner"}
        yield made
