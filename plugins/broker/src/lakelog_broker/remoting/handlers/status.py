"""Requests about the broker itself: its state, its settings, and the files that slaves copy."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from lakelog.files.filesystem import RealFileSystem
from lakelog_broker.broker import Broker
from lakelog_broker.codes import Refused, RequestCode, ResponseCode
from lakelog_broker.remoting.connection import Connection, Handler
from lakelog_broker.remoting.frame import VERSION, RemotingCommand
from lakelog_rocketmq.config.delayoffsets import load_delay_offsets
from lakelog_rocketmq.config.groups import load_groups
from lakelog_rocketmq.config.topics import load_topics

_NO_VERSION: Final = {"counter": 0, "stateVersion": 0, "timestamp": 0}
_UNMEASURED: Final = {
    **dict.fromkeys(("putTps", "getTotalTps", "getTransferredTps", "getTransferedTps"), "0.0"),
    **dict.fromkeys(("timerEnqueueTps", "timerDequeueTps"), "0.0"),
    **dict.fromkeys(
        (
            "sendThreadPoolQueueSize",
            "sendThreadPoolQueueHeadWaitTimeMills",
            "pullThreadPoolQueueSize",
            "pullThreadPoolQueueHeadWaitTimeMills",
            "queryThreadPoolQueueHeadWaitTimeMills",
            "pageCacheLockTimeMills",
            "msgPutTotalYesterdayMorning",
            "msgPutTotalTodayMorning",
            "msgPutTotalTodayNow",
            "msgGetTotalYesterdayMorning",
            "msgGetTotalTodayMorning",
            "msgGetTotalTodayNow",
            "timerReadBehind",
            "timerOffsetBehind",
            "timerCongestNum",
        ),
        "0",
    ),
}
"""Keys that mqadmin parses without a check. This broker has no thread pools and counts no rates."""


class StatusRequests:
    """Describes the broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._store = broker, broker.store
        self._files, self._path = RealFileSystem(), Path(broker.store.path)
        self._boot_ms = time.time_ns() // 1_000_000

    def handlers(self) -> Mapping[int, Handler]:
        """The requests that are served."""
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime_info,
            RequestCode.GET_BROKER_CONFIG: self.config,
            RequestCode.UPDATE_BROKER_CONFIG: self.update_config,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.topics,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.groups,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.consumer_offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: self.delay_offsets,
        }

    def runtime_info(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The ends of the log and the time of the start, as texts."""
        store = self._store
        low, high = store.min_offset, store.max_offset
        disk = shutil.disk_usage(self._path)
        earliest = [
            found
            for topic in self._broker.topics
            if (found := store.earliest_time(topic.topic, 0)) is not None
        ]
        table = {
            **_UNMEASURED,
            "bootTimestamp": self._boot_ms,
            "brokerActive": "true",
            "brokerVersion": VERSION,
            "brokerVersionDesc": "V5_3_3",
            "commitLogDirCapacity": f"Total : {disk.total} B, Free : {disk.free} B.",
            "commitLogDiskRatio": disk.used / disk.total,
            "commitLogMaxOffset": high,
            "commitLogMinOffset": low,
            "dispatchBehindBytes": max(0, high - store.dispatched_offset),
            "earliestMessageTimeStamp": min(earliest, default=-1),
            "remainHowManyDataToFlush": f"{max(0, high - store.flushed_offset)} B",
            "runtime": f"since {self._boot_ms} ms",
        }
        content = {"table": {name: str(value) for name, value in sorted(table.items())}}
        return request.response(body=json.dumps(content).encode())

    def config(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The settings in RocketMQ's names, as a properties file."""
        settings, (host, _, port) = self._broker.settings, self._broker.address.rpartition(":")
        pairs = {
            "brokerClusterName": settings.cluster,
            "brokerName": settings.name,
            "brokerId": 0,
            "brokerIP1": host,
            "listenPort": port,
            "brokerRole": "ASYNC_MASTER",
            "autoCreateTopicEnable": str(settings.auto_create_topics).lower(),
            "defaultTopicQueueNums": settings.default_queues,
            "regionId": settings.region,
            "storePathRootDir": self._path,
        }
        text = "".join(f"{name}={value}\n" for name, value in pairs.items())
        return request.response(body=text.encode())

    def update_config(self, _connection: Connection, _request: RemotingCommand) -> RemotingCommand:
        """Settings are fixed while the broker runs."""
        raise Refused(
            ResponseCode.NO_PERMISSION,
            "the settings of this broker cannot be changed while it runs; start it with others",
        )

    def topics(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """``config/topics.json``."""
        content = load_topics(self._files, self._path).content
        return _file(request, content, "topicConfigTable")

    def groups(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """``config/subscriptionGroup.json``."""
        content = load_groups(self._files, self._path).content
        return _file(request, content, "subscriptionGroupTable", "forbiddenTable")

    def delay_offsets(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """``config/delayOffset.json``."""
        content = load_delay_offsets(self._files, self._path).content
        return _file(request, content, "offsetTable")

    def consumer_offsets(
        self, _connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        """The offsets of all groups, with those that are not yet in the file."""
        offsets = self._broker.offsets
        table = {
            f"{topic}@{group}": queues
            for group in offsets.groups()
            for topic, queues in offsets.of_group(group).items()
        }
        return _file(request, {"offsetTable": table}, "offsetTable")


def _file(request: RemotingCommand, content: Mapping[str, Any], *tables: str) -> RemotingCommand:
    """A configuration file with empty tables where it has none yet."""
    whole = {"dataVersion": _NO_VERSION, **{name: {} for name in tables}, **content}
    return request.response(body=json.dumps(whole).encode())
