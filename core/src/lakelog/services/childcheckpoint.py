"""The checkpoint as a process beside the owner has it: the owner alone writes the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event, Lock

import attrs

from lakelog.errors import StoreError
from lakelog.files.filesystem import FileSystem
from lakelog.files.state.checkpoint import CheckpointKeeper, StoreCheckpoint
from lakelog.services.channel import Channel

_ANSWER_SECONDS = 60.0


class ChildCheckpoint(CheckpointKeeper):
    """Tells the owner what is durable, once it is; reads the file itself."""

    def __init__(self, files: FileSystem, path: Path, channel: Channel) -> None:
        super().__init__(files, path)
        self._channel = channel
        self._answered = Event()
        self._asking = Lock()

    def freeze(self) -> None:
        """A sync failed here."""
        super().freeze()
        self._channel.send("freeze")

    def ask(self, source: Callable[[], StoreCheckpoint]) -> None:
        """No dispatcher is a source; the owner asks its own."""
        raise NotImplementedError

    def advance(self, reached: StoreCheckpoint | None = None) -> None:
        """Let the owner raise its numbers, with its next packet."""
        if reached is not None and not self._frozen:
            self._channel.send("advance", numbers=list(attrs.astuple(reached)))

    def lower_index(self, most_ms: int) -> None:
        """Wait until the owner has done it: files are made anew behind it."""
        if self.read().index_timestamp_ms <= most_ms:
            return
        with self._asking:
            self._answered.clear()
            self._channel.send("lower", most_ms=most_ms)
            if not self._answered.wait(_ANSWER_SECONDS):
                raise StoreError("the owner does not answer; is it stopped?")

    def answered(self) -> None:
        """The owner has done what it was asked for."""
        self._answered.set()
