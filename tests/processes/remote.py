"""A store in another process that does what it is told; the argument is its path.

Each line it reads is a JSON list: a verb of :class:`_Worker` and its arguments. The answer is a
JSON list: ``["ok", VALUE]``, or the name and the text of the error that came of it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lakelog
from lakelog import Store
from tests.processes.program import end_with_parent
from tests.processes.words import message_of
from tests.support import forked


class RemoteError(Exception):
    """What was raised there.

    :ivar name: of its class
    """

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name


class Remote:
    """The process, as the test sees it."""

    def __init__(self, process: forked.Forked) -> None:
        self.process = process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def call(self, verb: str, *arguments: Any) -> Any:
        """Have it done; raises :class:`RemoteError`."""
        self.ask(verb, *arguments)
        return self.answer()

    def ask(self, verb: str, *arguments: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([verb, *arguments]) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"it died: {self.process.wait()}"
        name, value = json.loads(line)
        if name != "ok":
            raise RemoteError(name, value)
        return value

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def remote(path: Path) -> Iterator[Remote]:
    with forked.start(__name__, [str(path)]) as process:
        try:
            yield Remote(process)
        finally:
            process.kill()


class _Worker:
    """The verbs; each opens, puts or looks."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._store: Store | None = None

    @property
    def store(self) -> Store:
        assert self._store is not None, "open it first"
        return self._store

    def open(self, how: dict[str, Any]) -> str:
        self._store = lakelog.open(self._path, **how)
        return repr(self._store)

    def wait_until(self, instant: float) -> None:
        """Sleep until an instant of ``time.monotonic``, which is the same in every process."""
        time.sleep(max(0.0, instant - time.monotonic()))

    def put(self, key: str) -> int:
        return self.store.put(message_of(key)).physical_offset

    def put_batch(self, keys: list[str]) -> list[int]:
        return [each.physical_offset for each in self.store.put_batch(list(map(message_of, keys)))]

    def keys(self) -> list[str]:
        return [str(each.properties["KEYS"]) for each in self.store.scan()]

    def is_dispatched(self) -> bool:
        """Whether queues and index come to know all that is there."""
        return self.store.wait_dispatched()

    def close(self) -> None:
        self.store.close()


def main() -> None:
    end_with_parent()
    worker = _Worker(Path(sys.argv[1]))
    for line in sys.stdin:
        verb, *arguments = json.loads(line)
        try:
            answer = "ok", getattr(worker, verb)(*arguments)
        except Exception as error:  # noqa: BLE001  # any error goes to the test
            answer = type(error).__name__, str(error)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
