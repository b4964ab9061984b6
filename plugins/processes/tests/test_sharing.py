"""The sharing of stores keeps its contract."""

from __future__ import annotations

from lakelog.interfaces import StoreSharing
from lakelog_processes import plugin
from lakelog_processes.sharing import ProcessSharing
from lakelog_testing import PluginContract, StoreSharingContract


class TestSharing(StoreSharingContract):
    """:class:`ProcessSharing`."""

    plugin = plugin

    def make(self) -> StoreSharing:
        """Create the sharing."""
        return ProcessSharing()


class TestPlugin(PluginContract):
    """The plugin."""

    plugin = plugin
