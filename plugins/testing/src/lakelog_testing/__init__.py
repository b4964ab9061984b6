"""Contract kits, fakes and the crash simulator, for tests of stores and plugins.

Contract kits are pytest classes, one per kind of strategy. Subclass one, define how the strategy is
created, and its tests run against it. Call ``pytest.register_assert_rewrite("lakelog_testing")`` in
``conftest.py``, before importing it otherwise; failed checks then show their values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakelog_testing.contracts.dispatching import (
        DispatcherContract,
        FollowerContract,
        StoreExtensionContract,
    )
    from lakelog_testing.contracts.encoding import AcceleratorContract, AppendCallbackContract
    from lakelog_testing.contracts.flush import (
        DurableFlushStrategyContract,
        FlushStrategyContract,
        GroupFlushStrategyContract,
    )
    from lakelog_testing.contracts.housekeeping import (
        CleanerContract,
        DiskWatcherContract,
        SegmentSourceContract,
    )
    from lakelog_testing.contracts.plugin import PluginContract, SettingsFormatContract
    from lakelog_testing.contracts.replicating import ReceiverContract, ReplicatorContract
    from lakelog_testing.contracts.tables import TableContract, TableState, TableWorld
    from lakelog_testing.contracts.writer import WriterContract
    from lakelog_testing.fakes import (
        FakeClock,
        FakeLog,
        FakeReceivedLog,
        FakeReplicatedLog,
        SurplusCleaner,
    )
    from lakelog_testing.faultyfile import FaultyFile
    from lakelog_testing.interrupted_stores import Interruptions, check_interrupted
    from lakelog_testing.interrupting import Interrupted, interrupted, points
    from lakelog_testing.machine import StoreMachine
    from lakelog_testing.samples import (
        context_of,
        copy_store,
        count_hook_calls,
        encode_log,
        record_batch,
    )
    from lakelog_testing.scripted import ScriptedSlave

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
    "Interrupted",
    "Interruptions",
    "PluginContract",
    "ReceiverContract",
    "ReplicatorContract",
    "ScriptedSlave",
    "SegmentSourceContract",
    "SettingsFormatContract",
    "StoreExtensionContract",
    "StoreMachine",
    "SurplusCleaner",
    "TableContract",
    "TableState",
    "TableWorld",
    "WriterContract",
    "check_interrupted",
    "context_of",
    "copy_store",
    "count_hook_calls",
    "encode_log",
    "interrupted",
    "points",
    "record_batch",
]

_MODULES = {
    "contracts.dispatching": "DispatcherContract FollowerContract StoreExtensionContract",
    "contracts.encoding": "AcceleratorContract AppendCallbackContract",
    "contracts.flush": (
        "DurableFlushStrategyContract FlushStrategyContract GroupFlushStrategyContract"
    ),
    "contracts.housekeeping": "CleanerContract DiskWatcherContract SegmentSourceContract",
    "contracts.plugin": "PluginContract SettingsFormatContract",
    "contracts.replicating": "ReceiverContract ReplicatorContract",
    "contracts.tables": "TableContract TableState TableWorld",
    "contracts.writer": "WriterContract",
    "fakes": "FakeClock FakeLog FakeReceivedLog FakeReplicatedLog SurplusCleaner",
    "faultyfile": "FaultyFile",
    "interrupted_stores": "Interruptions check_interrupted",
    "interrupting": "Interrupted interrupted points",
    "machine": "StoreMachine",
    "samples": "context_of copy_store count_hook_calls encode_log record_batch",
    "scripted": "ScriptedSlave",
}
_LAZY = {each: module for module, names in _MODULES.items() for each in names.split()}


if not TYPE_CHECKING:  # a name that is not there is an error of types

    def __getattr__(name: str) -> Any:
        """Import each name on first use: most need pytest, and some NumPy."""
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
