"""All members on one store: an owner under ``lakelog serve``, producers, readers, who asks keys.

Some producers take over where an owner is gone, the others only attach. What is killed is started
again; after that every producer must get on.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import attrs

import lakelog
from lakelog.format.layout import OWN_DIR, SETTINGS_FILE
from tests.processes.judging import unexpected
from tests.processes.member import ERRORS, Member, owner_of
from tests.processes.producing import WAYS
from tests.processes.program import UNEXPECTED
from tests.processes.reading import SAW
from tests.processes.words import JOURNALS, QUEUES, STORE, TOPIC
from tests.support.waiting import until

SERVE: Final = "serve"
OWNED_CODE: Final = 3
"""What ``lakelog serve`` ends with where somebody owns the store."""
SEGMENT_BYTES: Final = 1 << 20
SIZES: Final = {"queue": 2000, "slots": 1000, "entries": 4000}
SETTINGS: Final = """\
segment_size_bytes = {segment}
max_message_size_bytes = 16384
writer = "{writer}"
flush = "{flush}"
os_page_cache_busy_timeout_ms = {busy_ms}
[consume-queue]
file_entries = {queue}
[hash-index]
slots = {slots}
entries = {entries}
[attach]
reconnect_timeout_ms = 20000
"""
WHO: Final = {"owner": 0.45, "member": 0.15}
"""How likely it is that a round kills the owner, and each of the others."""
LONGEST_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 0.3


def prepared(
    folder: Path,
    *,
    writer: str = "file",
    flush: str = "group-commit",
    segment_bytes: int = SEGMENT_BYTES,
    busy_ms: int = 1000,
    **sizes: int,
) -> Path:
    """A folder with the settings of a store that is not there yet."""
    for name in (JOURNALS, ERRORS, f"{STORE}/{OWN_DIR}"):
        (folder / name).mkdir(parents=True)
    given = {"segment": segment_bytes, "writer": writer, "flush": flush, "busy_ms": busy_ms}
    text = SETTINGS.format(**given, **{**SIZES, **sizes})
    (folder / STORE / OWN_DIR / SETTINGS_FILE).write_text(text)
    return folder


@attrs.define
class Tail:
    """Whole lines that begin with a word, from some place on."""

    path: Path
    word: str
    place: int = 0
    total: int = 0

    @classmethod
    def at_end(cls, path: Path, word: str) -> Tail:
        """Only those that come from now on."""
        return cls(path, word, path.stat().st_size if path.exists() else 0)

    def more(self) -> int:
        """How many have come since the last call."""
        count = self._count() if self.path.exists() else 0
        self.total += count
        return count

    def _count(self) -> int:
        with self.path.open("rb") as file:
            file.seek(self.place)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self.place += len(whole)
        prefix = self.word.encode() + b" "
        return sum(line.startswith(prefix) for line in whole.splitlines())


@attrs.frozen
class Group:
    folder: Path
    members: Mapping[str, Member]
    killed: Counter[str] = attrs.field(factory=Counter)
    tails: dict[str, Tail] = attrs.field(factory=dict)

    @classmethod
    def of(
        cls, folder: Path, producers: int, heirs: int, *, served: bool = True, **more: Member
    ) -> Group:
        """One that is not started yet.

        :param heirs: how many of the producers take over where an owner is gone
        :param served: whether ``lakelog serve`` is one of them
        :param more: other members, by name
        """
        found = dict[str, Member]()
        if served:
            words = ["tests.processes.command", "serve", str(folder / STORE)]
            found[SERVE] = Member(folder, SERVE, partial(_always, words))
        for at in range(producers):
            arguments = partial(_producing, folder, at, at < heirs)
            found[f"p{at}"] = Member(folder, f"p{at}", arguments, renamed=True)
        for name, program, *way in (
            ("reader0", "reading", "follow"),
            ("reader1", "reading", "poll"),
            ("asker", "asking"),
        ):
            words = [f"tests.processes.{program}", str(folder), name, *way]
            found[name] = Member(folder, name, partial(_always, words))
        return cls(folder, {**found, **more})

    @property
    def producers(self) -> list[Member]:
        return [each for each in self.members.values() if each.renamed]

    @property
    def others(self) -> list[Member]:
        """Who needs no owner that lives."""
        return [each for name, each in self.members.items() if name != SERVE and not each.renamed]

    # --- one round ---

    def round(self, choose: random.Random) -> None:
        """Kill some at some instant, start them again, and see that all get on."""
        time.sleep(choose.uniform(0, LONGEST_SECONDS))
        self._kill_some(choose)
        time.sleep(choose.uniform(0, LONGEST_PAUSE_SECONDS))
        self.start()
        self.see_progress()

    def start(self) -> None:
        """All that are not there; nobody may have ended by himself, but who found an owner."""
        for name, member in self.members.items():
            if not member.alive:
                self._check_end(name, member)
                member.start()

    def _check_end(self, name: str, member: Member) -> None:
        code = None if member.process is None else member.process.returncode
        if code in (None, -signal.SIGKILL) or (name == SERVE and code == OWNED_CODE):
            return
        raise AssertionError(f"{member.alias} ended by itself with {code}: {member.errors}")

    def _kill_some(self, choose: random.Random) -> None:
        owner = owner_of(self.folder)
        victims = list[tuple[str, int]]()
        if owner is not None and choose.random() < WHO["owner"]:
            victims.append(("owner", owner))
        others = [each for each in self.members.values() if each.name != SERVE and each.alive]
        few = [each for each in others if choose.random() < WHO["member"]]
        chosen = few or ([] if victims else [choose.choice(others)])
        self.kill([*victims, *((each.name, each.pid) for each in chosen)])

    def kill(self, victims: list[tuple[str, int]]) -> None:
        """All at once; each has a name, which is counted."""
        for what, pid in victims:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            self.killed[what.rstrip("0123456789")] += 1
        for member in self.members.values():
            if member.process is not None and any(pid == member.pid for _, pid in victims):
                member.process.wait()

    def see_progress(self) -> None:
        tails = [Tail.at_end(each.journal, "acked") for each in self.producers]
        waiting = list(zip(self.producers, tails, strict=True))

        def all_get_on() -> bool:
            self._check_members()
            waiting[:] = [each for each in waiting if not each[1].more()]
            return not waiting

        until(all_get_on, f"some do not get on, after {dict(self.killed)}")

    def _check_members(self) -> None:
        """Those that were not killed go on, and meet nothing that they should not."""
        for member in self.others:
            found = self.tails.setdefault(member.name, Tail(member.journal, UNEXPECTED))
            assert not found.more(), f"{member.name} met something: see its journal"
        for name, member in self.members.items():
            if not member.alive:
                self._check_end(name, member)

    # --- the end ---

    def stop(self) -> None:
        """Producers first, then those who follow, who must have seen all; the owner last."""
        for member in self.producers:
            member.send(signal.SIGTERM)
        until(self._are_producers_gone, "producers do not end")
        for member in self.producers:
            member.ended()
        until(self._is_served, "serve does not own the store")
        self.stop_others()
        self.members[SERVE].stop()

    def stop_others(self) -> None:
        """Once they have seen all."""
        self._readers_see_all()
        for member in self.others:
            member.stop()

    def _are_producers_gone(self) -> bool:
        self._serve()
        return not any(each.alive for each in self.producers)

    def _serve(self) -> None:
        """Have an owner, which the last producers that owned may not leave."""
        serve = self.members[SERVE]
        if not serve.alive and owner_of(self.folder) is None:
            self._check_end(SERVE, serve)
            serve.start()
            until(lambda: not serve.alive or owner_of(self.folder) is not None, "no owner")

    def _is_served(self) -> bool:
        """Whether ``serve`` owns it: one may have ended because the last producer had not yet."""
        self._serve()
        return owner_of(self.folder) == self.members[SERVE].pid

    def _readers_see_all(self) -> None:
        """All that dispatching has come to, which is everything: producers are gone."""
        with lakelog.open(self.folder / STORE, mode="read") as store:
            assert store.wait_dispatched(timeout_ms=30_000), "queues and index stand still"
            bounds = [store.queue_bounds(TOPIC, queue) for queue in range(QUEUES)]
        count = sum(each[1] for each in bounds if each is not None)
        for name, member in self.members.items():
            if name.startswith("reader"):
                _see_through(Tail(member.journal, SAW), count)

    def tell(self) -> str:
        """What there is to know where something went wrong."""
        for member in self.members.values():
            member.send(signal.SIGABRT)  # which has the places of all threads written
        time.sleep(1)
        said = [f"--- {each.alias}: {each.errors}" for each in self.members.values()]
        return "\n".join([*unexpected(self.folder), str(dict(self.killed)), *said])

    def end(self) -> None:
        """Leave nobody behind."""
        for member in self.members.values():
            member.kill()


def _see_through(tail: Tail, count: int) -> None:
    """Wait until there are so many lines, which may take long, but not stop."""
    while tail.total < count:
        until(lambda: tail.more() > 0, f"{tail.path.name} stands still")


@contextmanager
def running(group: Group) -> Iterator[Group]:
    """Start all; where something goes wrong, it says all there is to know."""
    try:
        group.start()
        yield group
    except BaseException:
        (group.folder / "told").write_text(group.tell())
        raise
    finally:
        group.end()


def _always(words: list[str], _name: str) -> list[str]:
    return words


def _producing(folder: Path, at: int, takes_over: bool, name: str) -> list[str]:
    """Every other one works in plain Python."""
    way = list(WAYS)[at % len(WAYS)]
    accelerator = "none" if at % 2 else "auto"
    given = json.dumps({"attach": {"take_over": takes_over}, "accelerator": accelerator})
    return ["tests.processes.producing", str(folder), name, way, given]
