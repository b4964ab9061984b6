"""The core's own strategies keep the contracts of their kinds."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from lakelog import builtin
from lakelog.builtin import FEW_BYTES, FileWriter, InlineFlush, NoFlush, RocketmqAppendCallback
from lakelog.errors import ThreadNotStarted
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.encoder import Encoder, Limits, RoundRobin
from lakelog.hooks import Factory, SegmentWriter
from lakelog.message import Body
from lakelog.registry import Registry
from lakelog.runtime.locks import LockFreeEvent
from lakelog_testing import (
    AppendCallbackContract,
    DurableFlushStrategyContract,
    FakeLog,
    FaultyFile,
    FlushStrategyContract,
    PluginContract,
    WriterContract,
)
from lakelog_testing.threads import no_thread_left, running


class TestNoFlush(FlushStrategyContract):
    def make(self) -> NoFlush:
        return NoFlush()


class TestInlineFlush(DurableFlushStrategyContract):
    def make(self) -> InlineFlush:
        return InlineFlush()

    def test_a_put_that_comes_while_another_starts_the_thread(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Both may start one; the close ends all."""
        threads: list[Thread] = []

        def make(**given: Any) -> Thread:
            thread = Thread(**given)
            threads.append(thread)
            if len(threads) == 1:
                inline.submit(log.append(), wait=False)
            return thread

        monkeypatch.setattr("lakelog.runtime.threads.Thread", make)
        log = FakeLog()
        with running(self.make(), log) as inline:
            inline.submit(log.append(), wait=False)
            self.await_flushed(log)
        assert threads

    def test_a_thread_that_could_not_be_started_is_started_by_the_next_put(
        self, log: FakeLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(_: Thread) -> None:
            raise RuntimeError("can't start new thread")

        flush = self.make()
        flush.start(log)
        with monkeypatch.context() as patched:
            patched.setattr(Thread, "start", refuse)
            with pytest.raises(ThreadNotStarted):
                flush.submit(log.append(), wait=False)
        flush.submit(log.append(), wait=False)
        self.await_flushed(log)
        flush.close()

    def test_a_close_while_the_thread_looks_is_seen(self) -> None:
        """What the close sets comes before the thread clears it, behind a wake."""

        class Asked(LockFreeEvent):
            def clear(self) -> None:
                inline._thread._closing = True
                self.set()
                super().clear()

        log, inline = FakeLog(), self.make()
        inline._thread._asked = Asked()
        with no_thread_left(self.patience_seconds):
            inline.start(log)
            inline.submit(log.append(), wait=False)


class TestFileWriter(WriterContract):
    def make(self) -> FileWriter:
        return FileWriter(map_below_bytes=16 << 10)


class TestFileWriterWithoutMap(WriterContract):
    def make(self) -> FileWriter:
        return FileWriter(map_below_bytes=0)


class TestAppendCallback(AppendCallbackContract):
    def make(self) -> RocketmqAppendCallback:
        limits = Limits.of(4 << 20, 1 << 30)
        return RocketmqAppendCallback(
            Encoder(limits, "127.0.0.1:10911", False, None, RoundRobin(4))
        )


class TestPlugin(PluginContract):
    plugin = builtin

    @pytest.fixture
    def registry(self) -> Registry:
        return Registry.load([], {})  # the core's own plugin is always there

    def offered(self, registry: Registry) -> list[Factory]:
        return [each.factory for each in registry.offered.values()]


SIZE = 64 << 10


class Counted(FaultyFile):
    beside_the_map = 0

    def write_at(self, position: int, data: Body) -> None:
        self.beside_the_map += 1
        super().write_at(position, data)


@pytest.fixture
def file(tmp_path: Path) -> Counted:
    made = RealFileSystem().open(tmp_path / "s", write=True, create=True)
    made.allocate(SIZE)
    return Counted(made)


@pytest.fixture
def writer(file: Counted) -> SegmentWriter:
    writer = FileWriter(16 << 10).open(file, SIZE, 0)
    writer.extend(0, SIZE)
    return writer


def put(writer: SegmentWriter, at: int, size: int) -> int:
    writer.write(at, bytes([at % 251]) * size)
    assert bytes(writer.view(at, size)) == bytes([at % 251]) * size
    return at + size


def test_a_lone_write_behind_each_sync_of_little(writer: SegmentWriter, file: Counted) -> None:
    at = put(writer, 0, 100)
    assert file.beside_the_map == 0  # nobody knows yet how often it is synced
    for count in range(1, 5):
        writer.sync()
        for _ in range(3):
            at = put(writer, at, 100)
        assert file.beside_the_map == count
    at = put(writer, at, FEW_BYTES)
    writer.sync()  # of much
    at = put(writer, at, FEW_BYTES)
    writer.sync()
    writer.sync()  # of nothing
    put(writer, at, 100)
    assert file.beside_the_map == 4
    writer.close()
