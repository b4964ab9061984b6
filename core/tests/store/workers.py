"""Processes that open one store in a role, and do what they are told, a line of JSON at a time."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

from core.tests.store.support import SEGMENT

PATIENCE_SECONDS: Final = 30
SERVE: Final = "serve"
"""The mode of who has the services from the beginning, or is refused."""
SMALL: Final[Mapping[str, Any]] = {
    "plugins": [],
    "flush": "none",
    "segment_size_bytes": SEGMENT,
    "preallocate": False,
}
WORKER: Final = """
import json, os, sys
import lakelog

def told(**what):
    print(json.dumps(what), flush=True)

def puts(store, name, count):
    done = [store.put(lakelog.Message("t", b"%s %d" % (name.encode(), n), queue_id=0))
            for n in range(count)]
    return [each.physical_offset for each in done]

try:
    given = json.loads(sys.argv[2])
    if given["mode"] == "serve":
        from lakelog.store.open import open_to_serve
        more = {key: given.pop(key) for key in ("mode", "plugins")}
        store = open_to_serve(sys.argv[1], plugins=more["plugins"], arguments=given)
    else:
        store = lakelog.open(sys.argv[1], **given)
except lakelog.LakelogError as error:
    told(error=type(error).__name__, text=str(error))
    sys.exit()
told(role=store.role)
for line in sys.stdin:
    word, *rest = json.loads(line)
    try:
        if word == "put":
            told(offsets=puts(store, *rest), role=store.role)
        elif word == "fork":
            child = os.fork()
            if not child:
                os.close(1)
                import time
                time.sleep(60)
                os._exit(0)
            told(child=child)
        elif word == "close":
            store.close()
            told(role=store.role)
        else:
            told(is_=eval(word))
    except Exception as error:
        told(error=type(error).__name__, text=str(error))
store.close()
"""


@attrs.frozen
class Worker:
    """A process that has, or wanted to have, a store open."""

    process: subprocess.Popen[str]

    def say(self, word: str, *rest: Any) -> None:
        """Tell it what to do."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([word, *rest]) + "\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """What it tells next."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE_SECONDS)
        assert ready, "the worker does not answer"
        said: dict[str, Any] = json.loads(self.process.stdout.readline() or "{}")
        return said

    def ask(self, word: str, *rest: Any) -> dict[str, Any]:
        """Tell it, and hear what came of it."""
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
def a_worker(path: Path, mode: str = "write", **settings: Any) -> Iterator[Worker]:
    """A process with the store in ``path`` open, or about to be: it tells its role first."""
    given = json.dumps({"mode": mode, **SMALL, **settings})
    command = [sys.executable, "-c", WORKER, str(path), given]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ}
    ) as process:
        try:
            yield Worker(process)
        finally:
            process.kill()


@contextmanager
def an_owner(path: Path, **settings: Any) -> Iterator[Worker]:
    """A process that owns the store in ``path``."""
    with a_worker(path, **settings) as worker:
        assert worker.hear() == {"role": "owner"}
        yield worker
