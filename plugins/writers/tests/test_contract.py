"""Both writers fulfil the contract of writers, with large and small buffers."""

from __future__ import annotations

import pytest

from lakelog_testing import PluginContract, WriterContract
from lakelog_testing.contracts.writer import SIZE
from lakelog_writers import plugin
from lakelog_writers.direct import DirectWriter
from lakelog_writers.settings import DirectSettings, StagedSettings
from lakelog_writers.staged import StagedWriter

pytestmark = pytest.mark.disk


class TestStaged(WriterContract):
    def make(self) -> StagedWriter:
        return StagedWriter(StagedSettings(), SIZE)


class TestStagedAndLocked(WriterContract):
    def make(self) -> StagedWriter:
        return StagedWriter(StagedSettings(lock_memory=True), SIZE)


class TestDirect(WriterContract):
    def make(self) -> DirectWriter:
        return DirectWriter(DirectSettings())


class TestDirectInSmallBuffers(WriterContract):
    def make(self) -> DirectWriter:
        return DirectWriter(
            DirectSettings(block_bytes=512, buffer_bytes=4096, buffers=2, threads=3)
        )


class TestDirectWithoutThreads(WriterContract):
    def make(self) -> DirectWriter:
        return DirectWriter(DirectSettings(buffer_bytes=4096, buffers=3, threads=0))


class TestPlugin(PluginContract):
    plugin = plugin
