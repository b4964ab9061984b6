"""The format and the plugin keep the contracts of their kinds."""

from __future__ import annotations

from pathlib import Path

from lakelog.interfaces import SettingsFormat
from lakelog_rocketmq import plugin
from lakelog_rocketmq.broker_conf import BrokerConf
from lakelog_testing import PluginContract, SettingsFormatContract


class TestBrokerConf(SettingsFormatContract):
    sample = b"flushDiskType=SYNC_FLUSH\nbrokerIP1=10.0.0.1\nbrokerName=a\nmaxMessageSize=5\n"
    wrong = b"flushDiskType=FAST\n"

    def make(self) -> SettingsFormat:
        return BrokerConf(Path("/nowhere"))


class TestPlugin(PluginContract):
    plugin = plugin
