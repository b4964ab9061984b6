"""Requests about the broker itself: its state, its settings, and the files that slaves copy.

Requests of tools about rates, and about the units of ConsumeQueues.

Source: RocketMQ 5.3.3, ``AdminBrokerProcessor``.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from lakelog.format.layout import COMMITLOG_DIR
from lakelog_broker.appending import TIMER_TOPIC
from lakelog_broker.broker import Broker
from lakelog_broker.codes import Refused, RequestCode, ResponseCode
from lakelog_broker.remoting.connection import Connection, Handler
from lakelog_broker.remoting.frame import VERSION, RemotingCommand
from lakelog_broker.state.traffic import (
    BROKER_GET,
    BROKER_PUT,
    DAY,
    HOUR,
    MINUTE,
    TIMER_GET,
    TOPIC_PUT,
)
from lakelog_rocketmq.config.delayoffsets import load_delay_offsets
from lakelog_rocketmq.config.groups import load_groups
from lakelog_rocketmq.config.topics import load_topics

_NO_VERSION: Final = {"counter": 0, "stateVersion": 0, "timestamp": 0}
_POOLS: Final = ("send", "pull", "litePull", "query", "ack")
_WITHOUT_POOLS: Final = {
    **{f"{name}ThreadPoolQueueSize": 0 for name in _POOLS},
    **{f"{name}ThreadPoolQueueHeadWaitTimeMills": 0 for name in _POOLS},
    **dict.fromkeys(("EndTransactionQueueSize", "pageCacheLockTimeMills"), 0),
}
"""Fields for the queues of RocketMQ's thread pools; this broker has none."""
_UNITS: Final = "KMGTPE"


class StatusRequests:
    """Describes the broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._store = broker, broker.store
        self._files, self._path = broker.files, Path(broker.store.path)

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
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
        """The bounds of the log, disk usage, start time of the broker and rates, as strings."""
        store = self._store
        low, high = store.min_offset, store.max_offset
        disk = shutil.disk_usage(self._path)
        full = disk.used / disk.total
        earliest = [
            found
            for topic in self._broker.topics
            if (found := store.earliest_time(topic.topic, 0)) is not None
        ]
        sizes = _bytes(disk.total), _bytes(disk.free)
        table = {
            **_WITHOUT_POOLS,
            **self._rates(),
            **self._timers(),
            "bootTimestamp": self._broker.started_ms,
            "brokerActive": "true",
            "brokerVersion": VERSION,
            "brokerVersionDesc": "V5_3_3",
            "commitLogDirCapacity": f"Total : {sizes[0]}, Free : {sizes[1]}.",
            "commitLogDiskRatio": full,
            f"commitLogDiskRatio_{self._path / COMMITLOG_DIR}": full,
            "commitLogMaxOffset": high,
            "commitLogMinOffset": low,
            "consumeQueueDiskRatio": full,
            "dispatchBehindBytes": max(0, high - store.dispatched_offset),
            "earliestMessageTimeStamp": min(earliest, default=-1),
            "putMessageSizeTotal": high - self._broker.start_offset,
            "remainHowManyDataToFlush": _bytes(max(0, high - store.flushed_offset)),
            "runtime": _duration(time.time_ns() // 1_000_000 - self._broker.started_ms),
            "startAcceptSendRequestTimeStamp": 0,
        }
        content = {"table": {name: str(value) for name, value in sorted(table.items())}}
        return request.response(body=json.dumps(content).encode())

    def _rates(self) -> dict[str, object]:
        """Counts and rates of messages.

        ``getTransferredTps`` and ``putTps`` have three rates: of the last 10 s, 1 min and 10 min.
        """
        traffic = self._broker.traffic
        grown = self._store.max_offset - self._broker.start_offset
        counts, since_s = traffic.counts(), max(1.0, time.time() - self._broker.started_ms / 1000)
        put, got = counts.get((BROKER_PUT, ""), 0), counts.get((BROKER_GET, ""), 0)
        yesterday, today = traffic.mornings
        read = _rates(traffic.recent_rates(BROKER_GET))
        found, missed = traffic.found / since_s, traffic.missed / since_s
        return {
            "getFoundTps": found,
            "getMissTps": missed,
            "getTotalTps": found + missed,
            "getTransferredTps": read,
            "getTransferedTps": read,  # as clients of RocketMQ 4 spell it
            "msgGetTotalTodayMorning": today[1],
            "msgGetTotalTodayNow": got,
            "msgGetTotalYesterdayMorning": yesterday[1],
            "msgPutTotalTodayMorning": today[0],
            "msgPutTotalTodayNow": put,
            "msgPutTotalYesterdayMorning": yesterday[0],
            "putMessageAverageSize": grown / max(1, put),
            "putMessageTimesTotal": put,
            "putTps": _rates(traffic.recent_rates(BROKER_PUT)),
        }

    def _timers(self) -> dict[str, object]:
        """Delay in seconds, numbers of unread and waiting messages, and rates of the last 10 s."""
        timers, traffic = self._broker.timers, self._broker.traffic
        return {
            "timerReadBehind": timers.behind_ms // 1000,
            "timerOffsetBehind": timers.unread,
            "timerCongestNum": len(timers),
            "timerEnqueueTps": traffic.recent_rates(TOPIC_PUT, TIMER_TOPIC)[0],
            "timerDequeueTps": traffic.recent_rates(TIMER_GET)[0],
        }

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
        """Refuse: settings cannot be changed while the broker runs."""
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
        """The offsets of all groups, including changes that are not in the file yet."""
        offsets = self._broker.offsets
        table = {
            f"{topic}@{group}": queues
            for group in offsets.groups()
            for topic, queues in offsets.of_group(group).items()
        }
        return _file(request, {"offsetTable": table}, "offsetTable")


def _file(request: RemotingCommand, content: Mapping[str, Any], *tables: str) -> RemotingCommand:
    """A response with the content of a configuration file; missing tables are empty."""
    whole = {"dataVersion": _NO_VERSION, **{name: {} for name in tables}, **content}
    return request.response(body=json.dumps(whole).encode())


def _rates(rates: Iterable[float]) -> str:
    return " ".join(map(str, rates))


def _bytes(size: int) -> str:
    """As RocketMQ's ``MixAll.humanReadableByteCount``.

    >>> _bytes(1000), _bytes(1536)
    ('1000 B', '1.5 KiB')
    """
    step = max(0, size.bit_length() - 1) // 10
    return f"{size / (1 << 10 * step):.1f} {_UNITS[step - 1]}iB" if step else f"{size} B"


def _duration(time_ms: int) -> str:
    """As RocketMQ's ``StoreStatsService.getFormatRuntime``.

    >>> _duration(90_061_000)
    '[ 1 days, 1 hours, 1 minutes, 1 seconds ]'
    """
    minutes, seconds = divmod(time_ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


_MAX_UNITS: Final = 1024


class StatisticsRequests:
    """Reports rates of :class:`~lakelog_broker.state.traffic.Traffic`, and ConsumeQueue units."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.VIEW_BROKER_STATS_DATA: self.rates,
            RequestCode.QUERY_CONSUME_QUEUE: self.units,
        }

    def rates(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The growth of a count in the last minute, hour and day."""
        name, key = request.fields["statsName"], request.fields["statsKey"]
        rates = self._broker.traffic.rates(name, "" if name in (BROKER_GET, BROKER_PUT) else key)
        if rates is None:
            remark = f"The stats <{name}> <{key}> not exist"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        names = {MINUTE: "statsMinute", HOUR: "statsHour", DAY: "statsDay"}
        content = {
            field: {"avgpt": 0.0, "sum": rates[window].count, "tps": rates[window].per_second}
            for window, field in names.items()
        }
        return request.response(body=json.dumps(content).encode())

    def units(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Units of a queue: physical offset and size of each record, and its tags code."""
        fields = request.fields
        topic, queue_id = fields["topic"], int(fields["queueId"])
        bounds = self._broker.store.queue_bounds(topic, queue_id)
        if bounds is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        low, high = bounds
        content: dict[str, Any] = {"maxQueueIndex": high, "minQueueIndex": low}
        group = fields.get("consumerGroup")
        if group:
            members = self._broker.members.group(group)
            subscription = members.subscriptions.get(topic) if members else None
            content["subscriptionData"] = subscription
            absent = f"{group}@{topic} is not online!"
            content["filterData"] = absent if subscription is None else "null"
        first, count = int(fields["index"]), max(0, min(int(fields["count"]), _MAX_UNITS))
        if not low <= first < high:
            remark = f"Index {first} of {queue_id}@{topic} is not exist!"
            return request.response(0, remark, json.dumps(content).encode())
        units = self._broker.store.queue_units(topic, queue_id, first, count)
        content["queueData"] = [
            {"eval": False, "physicOffset": int(at), "physicSize": int(size), "tagsCode": int(code)}
            for at, size, code in zip(units.offsets, units.sizes, units.tags_codes, strict=True)
        ]
        return request.response(body=json.dumps(content).encode())
