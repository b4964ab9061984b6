"""Asks the key index in a process of its own; its arguments are ``FOLDER NAME``.

It takes keys that producers have told as acknowledged, and once queues and index are said to know
the message, a query must find it where it is, and nothing else. An owner that completes its index
may need a while, so a key that is not found gets some more looks.
"""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path
from typing import Final

import attrs

from lakelog import Store
from tests.processes.program import UNEXPECTED, opened, run
from tests.processes.words import JOURNALS, STORE, TOPIC, Journal, key_of, message_of

ASKED: Final = "asked"
PRODUCER: Final = "p"
"""What names of producers begin with."""
_PAUSE_SECONDS: Final = 0.01
_PATIENCE_SECONDS: Final = 20.0
_TAIL_BYTES: Final = 4096


@attrs.frozen
class Asker:
    store: Store
    journal: Journal
    journals: Path
    choose: random.Random

    def ask(self) -> None:
        acked = self._some_acked()
        if acked is not None and self._is_dispatched(*acked):
            self._look(*acked)

    def _some_acked(self) -> tuple[str, int] | None:
        """The key and the place of a message."""
        names = [each for each in os.listdir(self.journals) if each.startswith(PRODUCER)]
        if not names:
            return None
        name = self.choose.choice(names)
        lines = [line.split() for line in _some_lines(self.journals / name, self.choose)]
        acked = [line for line in lines if line[:1] == ["acked"]]
        if not acked:
            return None
        _, first, _, *places = self.choose.choice(acked)
        at = self.choose.randrange(len(places))
        return key_of(name, int(first) + at), int(places[at])

    def _is_dispatched(self, key: str, place: int) -> bool:
        return self.store.dispatched_offset > place + len(message_of(key).body)

    def _look(self, key: str, place: int) -> None:
        end = time.monotonic() + _PATIENCE_SECONDS
        while True:
            found = [each.physical_offset for each in self.store.query(TOPIC, key)]
            if found == [place]:
                self.journal.tell(ASKED, key)
                return
            if found or time.monotonic() > end:
                self.journal.tell(UNEXPECTED, "query of", key, "at", place, "gave", found)
                return
            time.sleep(_PAUSE_SECONDS)


def _some_lines(path: Path, choose: random.Random) -> list[str]:
    """Whole lines from some place of a file."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(choose.randint(0, max(0, size - _TAIL_BYTES)))
        lines = file.read(_TAIL_BYTES).decode().split("\n")
    return lines[1:-1]


def main() -> None:
    run(_ask)


def _ask(folder: Path, journal: Journal, stopping: threading.Event, _more: list[str]) -> None:
    with opened(folder / STORE, journal, mode="read") as store:
        asker = Asker(store, journal, folder / JOURNALS, random.Random(journal.path.name))
        while not stopping.wait(_PAUSE_SECONDS):
            asker.ask()
