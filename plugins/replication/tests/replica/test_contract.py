"""The slave fulfils the contract of receivers, whatever it takes for durable."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from lakelog.files.filesystem import RealFileSystem
from lakelog.hooks import Context
from lakelog.hooks.kinds import StoreSettings
from lakelog_replication.replica.receiver import HaReceiver
from lakelog_replication.settings import RocketmqHaSettings
from lakelog_testing import ReceiverContract
from lakelog_testing.scripted import ScriptedMaster


class _SlaveKit(ReceiverContract):
    section: ClassVar[dict[str, Any]]
    _master: ScriptedMaster | None = None

    @pytest.fixture(autouse=True)
    def _in_a_folder(self, tmp_path: Path) -> None:
        (tmp_path / "lakelog").mkdir()
        settings = StoreSettings(segment_size_bytes=1 << 20)
        self.context = Context(tmp_path, settings, RealFileSystem())

    def begin_master(self, data: bytes) -> None:
        self._master = ScriptedMaster(data)
        self.address = self._master.address

    @property
    def master(self) -> ScriptedMaster:
        assert self._master is not None
        return self._master

    def extend_master(self, data: bytes) -> None:
        self.master.append(data)

    def set_master_back(self, end: int, data: bytes) -> None:
        self.master.set_back(end, data)

    def end_master(self) -> None:
        if self._master is not None:
            self._master.close()
            self._master = None

    def make(self) -> HaReceiver:
        section = {"sync_interval_ms": 10, "reconnect_interval_ms": 20, **self.section}
        return HaReceiver(
            RocketmqHaSettings(role="slave", master=self.address, **section), self.context
        )


class TestEverythingCounts(_SlaveKit):
    section: ClassVar[dict[str, Any]] = {"vouch": "received"}


class TestItsAgeCounts(_SlaveKit):
    section: ClassVar[dict[str, Any]] = {"vouch": "age", "vouch_age_ms": 20}


class TestTheMasterWaits(_SlaveKit):
    section: ClassVar[dict[str, Any]] = {"vouch": "received", "learner": False}
