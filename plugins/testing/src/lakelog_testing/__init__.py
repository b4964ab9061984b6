"""Contract kits, fakes and the crash simulator, for tests of stores and plugins.

Contract kits are pytest classes, one per kind of strategy. Subclass one, define how the strategy is
created, and its tests run against it. Call ``pytest.register_assert_rewrite("lakelog_testing")`` in
``conftest.py``, before importing it otherwise; failed checks then show their values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakelog_testing.contexts import context_of
    from lakelog_testing.contracts.accelerator import AcceleratorContract
    from lakelog_testing.contracts.append import AppendCallbackContract
    from lakelog_testing.contracts.cleaner import CleanerContract
    from lakelog_testing.contracts.diskwatcher import DiskWatcherContract
    from lakelog_testing.contracts.dispatcher import DispatcherContract
    from lakelog_testing.contracts.flush import (
        DurableFlushStrategyContract,
        FlushStrategyContract,
        GroupFlushStrategyContract,
    )
    from lakelog_testing.contracts.follower import FollowerContract
    from lakelog_testing.contracts.plugin import PluginContract
    from lakelog_testing.contracts.receiver import ReceiverContract
    from lakelog_testing.contracts.replicator import ReplicatorContract
    from lakelog_testing.contracts.segmentsource import SegmentSourceContract
    from lakelog_testing.contracts.settingsformat import SettingsFormatContract
    from lakelog_testing.contracts.storeextension import StoreExtensionContract
    from lakelog_testing.contracts.storemaintenance import StoreMaintenanceContract
    from lakelog_testing.contracts.storesharing import StoreSharingContract
    from lakelog_testing.contracts.writer import WriterContract
    from lakelog_testing.copies import copy_store
    from lakelog_testing.fakeclock import FakeClock
    from lakelog_testing.fakelog import FakeLog
    from lakelog_testing.faultyfile import FaultyFile
    from lakelog_testing.hookcalls import count_hook_calls
    from lakelog_testing.machine import StoreMachine
    from lakelog_testing.receivedlog import FakeReceivedLog
    from lakelog_testing.records import encode_log, record_batch
    from lakelog_testing.replicatedlog import FakeReplicatedLog
    from lakelog_testing.scriptedslave import ScriptedSlave
    from lakelog_testing.surplus import SurplusCleaner

__all__ = [
    "AcceleratorContract",
    "AppendCallbackContract",
    "CleanerContract",
    "DiskWatcherContract",
    "DispatcherContract",
    "DurableFlushStrategyContract",
    "FakeClock",
    "FakeLog",
    "FakeReceivedLog",
    "FakeReplicatedLog",
    "FaultyFile",
    "FlushStrategyContract",
    "FollowerContract",
    "GroupFlushStrategyContract",
    "PluginContract",
    "ReceiverContract",
    "ReplicatorContract",
    "ScriptedSlave",
    "SegmentSourceContract",
    "SettingsFormatContract",
    "StoreExtensionContract",
    "StoreMachine",
    "StoreMaintenanceContract",
    "StoreSharingContract",
    "SurplusCleaner",
    "WriterContract",
    "context_of",
    "copy_store",
    "count_hook_calls",
    "encode_log",
    "record_batch",
]

_MODULES = {
    "AcceleratorContract": "contracts.accelerator",
    "AppendCallbackContract": "contracts.append",
    "CleanerContract": "contracts.cleaner",
    "DiskWatcherContract": "contracts.diskwatcher",
    "DispatcherContract": "contracts.dispatcher",
    "DurableFlushStrategyContract": "contracts.flush",
    "FakeClock": "fakeclock",
    "FakeLog": "fakelog",
    "FakeReceivedLog": "receivedlog",
    "FakeReplicatedLog": "replicatedlog",
    "FaultyFile": "faultyfile",
    "FlushStrategyContract": "contracts.flush",
    "FollowerContract": "contracts.follower",
    "GroupFlushStrategyContract": "contracts.flush",
    "PluginContract": "contracts.plugin",
    "ReceiverContract": "contracts.receiver",
    "ReplicatorContract": "contracts.replicator",
    "ScriptedSlave": "scriptedslave",
    "SegmentSourceContract": "contracts.segmentsource",
    "SettingsFormatContract": "contracts.settingsformat",
    "StoreExtensionContract": "contracts.storeextension",
    "StoreSharingContract": "contracts.storesharing",
    "StoreMachine": "machine",
    "StoreMaintenanceContract": "contracts.storemaintenance",
    "SurplusCleaner": "surplus",
    "WriterContract": "contracts.writer",
    "context_of": "contexts",
    "copy_store": "copies",
    "count_hook_calls": "hookcalls",
    "encode_log": "records",
    "record_batch": "records",
}


if not TYPE_CHECKING:  # a name that is not there is an error of types

    def __getattr__(name: str) -> Any:
        """Import each name on first use: most need pytest, and some NumPy."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
