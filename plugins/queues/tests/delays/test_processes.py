"""Processes put delayed messages into one store, while the one that delivers is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import lakelog
from lakelog import Message
from tests.support.waiting import until

PROGRAM: Final = """
import json, random, sys, time
import lakelog

path, name = sys.argv[1:]
with lakelog.open(path) as store:
    for number in range(1_000_000):
        due_ms = time.time_ns() // 1_000_000 + random.randrange(1, 2_000)
        body = f"{name}-{number}".encode()
        store.put(lakelog.Message("orders", body, queue_id=0, deliver_at_ms=due_ms))
        print(json.dumps([body.decode(), due_ms, store.role]), flush=True)
        time.sleep(0.01)
"""
KILLS: Final = 4


class Putting:
    """A process that puts delayed messages, and the file in which it notes each that returned."""

    def __init__(self, folder: Path, name: str) -> None:
        self._notes = folder / f"notes-{name}"
        with self._notes.open("wb") as file:
            command = [sys.executable, "-c", PROGRAM, str(folder / "store"), name]
            self.process = subprocess.Popen(command, stdout=file)

    def notes(self) -> list[Any]:
        """Body, due time and role of each put; the last line may be cut."""
        lines = self._notes.read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines]

    def delivers(self) -> bool:
        """Whether it has the services."""
        notes = self.notes()
        return bool(notes) and notes[-1][2] == "owner"

    def kill(self) -> None:
        """End it by SIGKILL."""
        self.process.kill()
        self.process.wait()


def delivered(store: lakelog.Store) -> Iterator[tuple[str, int]]:
    """The body and the store time of each message that came."""
    if store.queue_bounds("orders", 0) is not None:
        for each in store.read("orders", 0):
            yield bytes(each.body).decode(), each.store_timestamp_ms


def test_a_killed_process_that_delivers_is_followed_by_another(tmp_path: Path) -> None:
    lakelog.open(tmp_path / "store").close()
    every: list[Putting] = []
    with ExitStack() as ends, lakelog.open(tmp_path / "store", mode="read") as reader:

        def start() -> None:
            every.append(Putting(tmp_path, str(len(every))))
            ends.callback(every[-1].kill)

        def owner() -> Putting | None:
            running = [each for each in every if each.process.poll() is None]
            return next((each for each in running if each.delivers()), None)

        start()
        start()
        for number in range(KILLS):
            found = until(owner, "no process has the services")
            before = sum(1 for _ in delivered(reader))
            until(lambda most=before: sum(1 for _ in delivered(reader)) > most)  # type: ignore[misc]  # mypy sees no type of the default
            found.kill()
            start()
            assert number < len(every)
        until(owner)
    due_ms = {body: due for each in every for body, due, _ in each.notes()}
    with lakelog.open(tmp_path / "store") as store:
        until(lambda: due_ms.keys() <= {body for body, _ in delivered(store)}, "some are lost")
        assert [body for body, at in delivered(store) if at < due_ms.get(body, 0)] == []
    with lakelog.open(tmp_path / "store") as store:
        counts = Counter(body for body, _ in delivered(store))
        store.put(Message("orders", b"last", queue_id=0, delay_ms=1))
        until(lambda: "last" in {body for body, _ in delivered(store)})
        assert Counter(body for body, _ in delivered(store)) == counts + Counter({"last": 1})
