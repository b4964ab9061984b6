"""The master fulfils the contract of replicators, whatever it lets puts wait for."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelog_replication import plugin
from lakelog_replication.master.replicator import HaMaster
from lakelog_testing import PluginContract, ReplicatorContract
from plugins.replication.tests.masters import make


class _MasterKit(ReplicatorContract):
    in_sync_replicas: int
    send: str

    @pytest.fixture(autouse=True)
    def _in_a_folder(self, tmp_path: Path) -> None:
        self.path = tmp_path

    def make(self) -> HaMaster:
        return make(self.path, in_sync_replicas=self.in_sync_replicas, send=self.send)


class TestNoPutWaits(_MasterKit):
    in_sync_replicas, send = 1, "written"


class TestPutsWait(_MasterKit):
    in_sync_replicas, send = 2, "written"


class TestPutsWaitForDurableCopies(_MasterKit):
    in_sync_replicas, send = 3, "flushed"


class TestPlugin(PluginContract):
    plugin = plugin
