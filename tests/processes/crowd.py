"""Writers and readers of one queue, forked from a process that has imported lakelog.

A writer puts in short bursts. Each line of its journal is an answered put: ``acked NUMBER PLACE
MICROSECONDS``, the last being how long it waited. A reader follows the queue, and goes on with its
journal where it is started again: ``saw QUEUE-OFFSET PLACE``.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

import attrs

import lakelog
from tests.processes.program import end_with_parent, guarded
from tests.processes.words import JOURNALS, STORE, Journal
from tests.support.forked import FORKS
from tests.support.waiting import until

TOPIC: Final = "t"
QUEUE: Final = 0
WRITER: Final = "w"
READER: Final = "reader"
ACKED: Final = "acked"
SAW: Final = "saw"
MOST_IN_A_BURST: Final = 10
LONGEST_PAUSE_SECONDS: Final = 0.2
KEY_EVERY: Final = 50
ERRORS: Final = "errors"
_LAST_CHARACTERS: Final = 8000


def write(folder: Path, name: str, how: Mapping[str, Any]) -> None:
    """Put until killed; about every other writer in plain Python, the others in Rust."""

    def work(journal: Journal) -> None:
        choose = random.Random(name)
        accelerator = choose.choice(["none", "auto"])
        with lakelog.open(folder / STORE, accelerator=accelerator, **how) as store:
            number = 0
            while True:
                for _ in range(choose.randint(1, MOST_IN_A_BURST)):
                    _put(store, journal, name, number)
                    number += 1
                time.sleep(choose.uniform(0, LONGEST_PAUSE_SECONDS))

    _work(folder, name, work)


def _put(store: lakelog.Store, journal: Journal, name: str, number: int) -> None:
    body = f"{name}:{number}:".encode() + bytes(number * 97 % 1500)
    keys = f"{name}-{number}" if number % KEY_EVERY == 0 else None
    begun = time.monotonic_ns()
    result = store.put(lakelog.Message(TOPIC, body, queue_id=QUEUE, keys=keys))
    waited_us = (time.monotonic_ns() - begun) // 1000
    assert result.status is lakelog.PutStatus.PUT_OK, result
    journal.tell(ACKED, number, result.physical_offset, waited_us)


def read(folder: Path, name: str, how: Mapping[str, Any]) -> None:
    """Follow until killed."""

    def work(journal: Journal) -> None:
        text = journal.path.read_bytes()
        journal.path.write_bytes(text[: text.rfind(b"\n") + 1])  # a kill may have cut the last line
        start = text.count(b"\n")
        with lakelog.open(folder / STORE, mode="read") as store:
            for message in store.read(TOPIC, QUEUE, start, follow=True):
                journal.tell(SAW, message.queue_offset, message.physical_offset)

    _work(folder, name, work)


def _work(folder: Path, name: str, work: Callable[[Journal], None]) -> None:
    end_with_parent()
    errors = os.open(folder / ERRORS / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(errors, 2)
    faulthandler.enable(errors)
    journal = Journal.opened(folder, name)
    guarded(journal, partial(work, journal))


@attrs.define
class One:
    """A process and what it does."""

    name: str
    process: BaseProcess
    journal: Path
    size: int = 0

    def has_got_on(self) -> bool:
        """Whether it has told anything since :meth:`look`."""
        return self.journal.exists() and self.journal.stat().st_size > self.size

    def look(self) -> None:
        self.size = self.journal.stat().st_size if self.journal.exists() else 0


@attrs.define
class Crowd:
    """The living; who is killed is replaced.

    :ivar how: what writers open the store with
    """

    folder: Path
    how: Mapping[str, Any]
    writers: list[One] = attrs.field(factory=list)
    readers: list[One] = attrs.field(factory=list)
    begun: int = 0

    def begin(self, writers: int, readers: int) -> None:
        """Have so many; wait until all have told something."""
        while len(self.writers) < writers:
            self.begun += 1
            takes_over = self.begun <= writers or self.begun % 4 > 0
            self.writers.append(
                self._forked(
                    write,
                    f"{WRITER}{self.begun}",
                    {**self.how, "attach": {"take_over": takes_over}},
                )
            )
        names = {each.name for each in self.readers}
        for name in (f"{READER}{at}" for at in range(readers)):
            if name not in names:
                self.readers.append(self._forked(read, name, {}))
        self.see_all_get_on()

    def _forked(self, work: Callable[..., None], name: str, how: Mapping[str, Any]) -> One:
        process = FORKS.Process(target=work, args=(self.folder, name, how), daemon=True)
        process.start()
        return One(name, process, self.folder / JOURNALS / name)

    @property
    def living(self) -> list[One]:
        return [*self.writers, *self.readers]

    def see_all_get_on(self) -> None:
        """Each has something to tell, within the patience of these tests."""
        for each in self.living:
            each.look()
        try:
            until(self._all_get_on, "some do not get on")
        except AssertionError as error:
            late = [each for each in self.living if not each.has_got_on()]
            error.add_note(f"{[each.name for each in late]}: {self._told_by(late)}")
            raise

    def _all_get_on(self) -> bool:
        self.check_alive()
        return all(each.has_got_on() for each in self.living)

    def check_alive(self) -> None:
        """Nobody ends but by a kill."""
        for each in self.living:
            code = each.process.exitcode
            assert code is None, f"{each.name} ended with {code}: {self._errors(each)}"

    def _told_by(self, some: list[One]) -> str:
        """Where all their threads are."""
        for each in some:
            os.kill(each.process.pid or 0, signal.SIGABRT)
            each.process.join()
        return "\n".join(self._errors(each) for each in some)

    def _errors(self, one: One) -> str:
        return (self.folder / ERRORS / one.name).read_text(errors="replace")[-_LAST_CHARACTERS:]

    def kill(self, some: list[One]) -> None:
        """All at once; they have not ended by themselves."""
        self.check_alive()
        for each in some:
            each.process.kill()
        for each in some:
            each.process.join()
            (self.readers if each in self.readers else self.writers).remove(each)

    def end(self) -> None:
        """Leave none behind."""
        for each in self.living:
            each.process.kill()
            each.process.join()
