"""The core's own strategies keep the contracts of their kinds."""

from __future__ import annotations

import pytest

from lakelog.builtin import plugin
from lakelog.builtin.filewriter import FileWriter
from lakelog.builtin.flush import InlineFlush, NoFlush
from lakelog.codec import RocketmqAppendCallback
from lakelog.codec.encoder import Encoder
from lakelog.codec.limits import Limits
from lakelog.codec.queuechoice import RoundRobin
from lakelog.interfaces import Factory
from lakelog.registry import Registry
from lakelog.testing import (
    AppendCallbackContract,
    DurableFlushStrategyContract,
    FlushStrategyContract,
    PluginContract,
    WriterContract,
)


class TestNoFlush(FlushStrategyContract):
    def make(self) -> NoFlush:
        return NoFlush()


class TestInlineFlush(DurableFlushStrategyContract):
    def make(self) -> InlineFlush:
        return InlineFlush()


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
    plugin = plugin

    @pytest.fixture
    def registry(self) -> Registry:
        return Registry.load([], {})  # the core's own plugin is always there

    def offered(self, registry: Registry) -> list[Factory]:
        return [registry.factory(row.kind, row.name) for row in registry.offers()]


def test_the_store_host_is_checked_when_the_callback_is_made() -> None:
    from pathlib import Path

    from lakelog.builtin import append
    from lakelog.errors import SettingsError
    from lakelog.files import RealFileSystem
    from lakelog.interfaces import Context
    from lakelog.settings.model import StoreSettings

    core = StoreSettings(store_host="example.org")
    with pytest.raises(SettingsError, match="store_host"):
        append.make(None, Context(Path("/"), core, RealFileSystem()))
