"""Requests about topics and the broker itself, and those to a name server.

These are routes, lists of topics, key-value pairs; the broker's state, settings and rates; and the
files that slaves copy. Source: RocketMQ 5.3.3, ``AdminBrokerProcessor``,
``DefaultRequestProcessor``, ``KVConfigManager``.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from lakelog.format.layout import COMMITLOG_DIR
from lakelog.format.properties import TIMER_TOPIC
from lakelog_broker import traffic
from lakelog_broker.appending import SYSTEM_TOPICS
from lakelog_broker.broker import Broker
from lakelog_broker.codes import Forbidden, Invalid, NotFound, NoTopic, Refused, check_limit
from lakelog_broker.remoting.frame import VERSION, RemotingCommand, queue_object
from lakelog_broker.remoting.server import Connection
from lakelog_rocketmq.config import TopicConfig, load_delay_offsets, load_groups, load_topics
from lakelog_rocketmq.fastjson import Entries, encode, encode_for_browsers

_ATTRIBUTES: Final = {
    "cleanup.policy": "DELETE|COMPACTION",
    "lite.topic.expiration": r"-1|\d{1,5}",
    "message.type": "UNSPECIFIED|NORMAL|FIFO|DELAY|TRANSACTION|MIXED|LITE|PRIORITY",
    "queue.type": "SimpleCQ",
}
"""Accepted attributes of topics, with patterns of their values. ``queue.type=BatchCQ`` is refused:
this broker has only queues of single messages."""
_NO_VERSION: Final = {"counter": 0, "stateVersion": 0, "timestamp": 0}
_POOLS: Final = ("send", "pull", "litePull", "query", "ack")
_WITHOUT_POOLS: Final = {
    **{f"{name}ThreadPoolQueueSize": 0 for name in _POOLS},
    **{f"{name}ThreadPoolQueueHeadWaitTimeMills": 0 for name in _POOLS},
    **dict.fromkeys(("EndTransactionQueueSize", "pageCacheLockTimeMills"), 0),
}
"""Fields for the queues of RocketMQ's thread pools; this broker has none."""
_WITH_STRICT_ROUTES: Final = 401
"""The ordinal of 4.9.4 in ``MQVersion``: from it on, all keys of a route have quotes."""
_UNITS: Final = "KMGTPE"
_MAX_UNITS: Final = 1024
_MAX_VALUE: Final = 65_536
_MAX_VALUES: Final = 10_000


def create_topic(connection: Connection, request: RemotingCommand) -> None:
    """Create a topic, or change its queues, permission and attributes."""
    fields, topics = request.fields, connection.broker.topics
    name = fields["topic"]
    known = topics.find(name) or TopicConfig(name)
    topics.set(
        attrs.evolve(
            known,
            attributes=_attributes(known.attributes, fields.get("attributes") or ""),
            read_queues=int(fields["readQueueNums"]),
            write_queues=int(fields["writeQueueNums"]),
            permission=int(fields["perm"]),
        )
    )


def topic_config(connection: Connection, request: RemotingCommand) -> dict[str, Any]:
    """The configuration of a topic, as in ``topics.json``."""
    found = connection.broker.topics.require(request.fields["topic"])
    return {
        "attributes": dict(found.attributes),
        "order": False,
        "perm": found.permission,
        "readQueueNums": found.read_queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": found.topic,
        "topicSysFlag": 0,
        "writeQueueNums": found.write_queues,
    }


def topic_stats(connection: Connection, request: RemotingCommand) -> dict[str, Any]:
    """The bounds of each queue."""
    broker = connection.broker
    topic = broker.topics.require(request.fields["topic"])
    rows = Entries()
    for queue_id in range(topic.queue_count):
        low, high = broker.bounds(topic.topic, queue_id)
        last_ms = broker.time_of(topic.topic, queue_id, high - 1)
        queue = queue_object(broker.settings.name, topic.topic, queue_id)
        rows.append((queue, {"lastUpdateTimestamp": last_ms, "maxOffset": high, "minOffset": low}))
    rates = broker.traffic.rates(traffic.TOPIC_PUT, topic.topic)
    per_second = rates[traffic.MINUTE].per_second if rates else 0.0
    return {"offsetTable": rows, "topicPutTps": per_second}


def delete_topic(connection: Connection, request: RemotingCommand) -> None:
    """Remove a topic from the configuration; its ConsumeQueues stay until they are unused."""
    connection.broker.topics.remove(request.fields["topic"])


def delete_route(_connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """Do nothing: routes are computed from the topics."""
    return request.response()


def _attributes(known: Mapping[str, str], changes: str) -> dict[str, str]:
    """Apply changes such as ``+message.type=FIFO,-cleanup.policy``; raises :class:`Refused`."""
    pairs = (change.partition("=")[::2] for change in changes.split(",") if change)
    return altered(known, pairs, _ATTRIBUTES)


def altered(
    known: Mapping[str, str], changes: Iterable[tuple[str, str]], served: Mapping[str, str]
) -> dict[str, str]:
    """Attributes with changes such as ``("+message.type", "FIFO")`` and ``("-queue.type", "")``.

    :param served: patterns of the values, by name

    Raises :class:`Invalid` for another name or value.
    """
    changed = dict(known)
    for name, value in changes:
        if name[:1] == "-":
            changed.pop(name[1:], None)
        elif name[:1] == "+" and re.fullmatch(served.get(name[1:], "(?!)"), value):
            changed[name[1:]] = value
        else:
            names = ", ".join(f"{key}={pattern}" for key, pattern in served.items())
            remark = f"the attribute '{name}={value}' is not served; give +NAME=VALUE of {names}"
            raise Invalid(remark)
    return changed


def route(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """The route of a topic: its number of queues, and this broker's address."""
    broker, topic = connection.broker, request.fields["topic"]
    found = broker.topics.find(topic)
    if found is None:
        raise NoTopic(f"No topic route info in name server for the topic: {topic}")
    queues = {
        "brokerName": broker.settings.name,
        "perm": found.permission,
        "readQueueNums": found.read_queues,
        "topicSysFlag": 0,
        "writeQueueNums": found.write_queues,
    }
    data = [_broker_data(broker)]
    content = {"brokerDatas": data, "filterServerTable": {}, "queueDatas": [queues]}
    is_strict = request.fields.get("acceptStandardJsonOnly") == "true"
    is_new = request.version >= _WITH_STRICT_ROUTES
    return request.response(body=(encode_for_browsers if is_new or is_strict else encode)(content))


def cluster(connection: Connection, _request: RemotingCommand) -> dict[str, Any]:
    """The cluster, with this broker as its only one."""
    settings = connection.broker.settings
    return {
        "brokerAddrTable": {settings.name: _broker_data(connection.broker)},
        "clusterAddrTable": {settings.cluster: [settings.name]},
    }


def all_names(connection: Connection, _request: RemotingCommand) -> dict[str, Any]:
    """The names of all topics."""
    return {"topicList": [each.topic for each in connection.broker.topics]}


def _broker_data(broker: Broker) -> dict[str, Any]:
    settings = broker.settings
    return {
        "brokerAddrs": {0: broker.address},
        "brokerName": settings.name,
        "cluster": settings.cluster,
        "enableActingMaster": False,
    }


def set_value(connection: Connection, request: RemotingCommand) -> None:
    """Set the value of a key, until the broker ends."""
    namespace, key, value = (request.fields[each] for each in ("namespace", "key", "value"))
    check_limit(len(namespace) + len(key) + len(value), _MAX_VALUE, "a value of {} characters")
    names = connection.server.names
    count = sum(map(len, names.values())) + (key not in names.get(namespace, ()))
    check_limit(count, _MAX_VALUES, "{} values")
    names.setdefault(namespace, {})[key] = value


def get_value(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """The value of a key."""
    namespace, key = request.fields["namespace"], request.fields["key"]
    found = connection.server.names.get(namespace, {}).get(key)
    if found is None:
        raise NotFound(f"No config item, Namespace: {namespace} Key: {key}")
    return request.response(value=found)


def delete_value(connection: Connection, request: RemotingCommand) -> None:
    """Remove a key, if it exists."""
    connection.server.names.get(request.fields["namespace"], {}).pop(request.fields["key"], None)


def values_of_namespace(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """All keys and values of a namespace."""
    namespace = request.fields["namespace"]
    found = connection.server.names.get(namespace)
    if found is None:
        raise NotFound(f"No config item, Namespace: {namespace}")
    return request.json({"table": found})


def name_server_config(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """The settings of this broker's name server, as a properties file."""
    host, _, port = connection.broker.address.rpartition(":")
    text = f"bindAddress={host}\nlistenPort={port}\nenableTopicList=true\n"
    return request.response(body=text.encode())


def topics_of_cluster(connection: Connection, request: RemotingCommand) -> dict[str, Any]:
    """The names of all topics, if the cluster is this one."""
    is_ours = request.fields["cluster"] == connection.broker.settings.cluster
    return all_names(connection, request) if is_ours else {"topicList": []}


def system_names(connection: Connection, _request: RemotingCommand) -> dict[str, Any]:
    """The topics by which tools find the cluster and the broker."""
    settings, address = connection.broker.settings, connection.broker.address
    return {"brokerAddr": address, "topicList": [settings.cluster, settings.name]}


def system_topics(_connection: Connection, _request: RemotingCommand) -> dict[str, Any]:
    """The names of RocketMQ's own topics, whether they exist here or not."""
    return {"topicList": sorted(SYSTEM_TOPICS)}


# --- about the broker ---


def runtime_info(connection: Connection, _request: RemotingCommand) -> dict[str, Any]:
    """The bounds of the log, disk usage, start time of the broker and rates, as strings."""
    broker, store, path = connection.broker, connection.broker.store, connection.broker.path
    high, disk = store.max_offset, shutil.disk_usage(path)
    full = disk.used / disk.total
    times = [store.earliest_time(topic.topic, 0) for topic in broker.topics]
    sizes = _bytes(disk.total), _bytes(disk.free)
    table = {
        **_WITHOUT_POOLS,
        **_message_rates(broker),
        **_timers(broker),
        "bootTimestamp": broker.started_ms,
        "brokerActive": "true",
        "brokerVersion": VERSION,
        "brokerVersionDesc": "V5_3_3",
        "commitLogDirCapacity": f"Total : {sizes[0]}, Free : {sizes[1]}.",
        "commitLogDiskRatio": full,
        f"commitLogDiskRatio_{path / COMMITLOG_DIR}": full,
        "commitLogMaxOffset": high,
        "commitLogMinOffset": store.min_offset,
        "consumeQueueDiskRatio": full,
        "dispatchBehindBytes": max(0, high - store.dispatched_offset),
        "earliestMessageTimeStamp": min((each for each in times if each is not None), default=-1),
        "putMessageSizeTotal": high - broker.start_offset,
        "remainHowManyDataToFlush": _bytes(max(0, high - store.flushed_offset)),
        "runtime": _duration(time.time_ns() // 1_000_000 - broker.started_ms),
        "startAcceptSendRequestTimeStamp": 0,
    }
    return {"table": {name: str(value) for name, value in sorted(table.items())}}


def _message_rates(broker: Broker) -> dict[str, object]:
    """Counts and rates of messages.

    ``getTransferredTps`` and ``putTps`` have three rates: of the last 10 s, 1 min and 10 min.
    """
    counted = broker.traffic
    grown = broker.store.max_offset - broker.start_offset
    counts, since_s = counted.counts(), max(1.0, time.time() - broker.started_ms / 1000)
    put, got = counts.get((traffic.BROKER_PUT, ""), 0), counts.get((traffic.BROKER_GET, ""), 0)
    yesterday, today = counted.mornings
    read = " ".join(map(str, counted.recent_rates(traffic.BROKER_GET)))
    found, missed = counted.found / since_s, counted.missed / since_s
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
        "putTps": " ".join(map(str, counted.recent_rates(traffic.BROKER_PUT))),
    }


def _timers(broker: Broker) -> dict[str, object]:
    """Delay in seconds, numbers of unread and waiting messages, and rates of the last 10 s.

    The delay and the numbers are 0 if another process delivers.
    """
    timers, rates = broker.timers, broker.traffic.recent_rates
    return {
        "timerReadBehind": 0 if timers is None else timers.behind_ms // 1000,
        "timerOffsetBehind": 0 if timers is None else timers.unread,
        "timerCongestNum": 0 if timers is None else len(timers),
        "timerEnqueueTps": rates(traffic.TOPIC_PUT, TIMER_TOPIC)[0],
        "timerDequeueTps": rates(traffic.TIMER_GET)[0],
    }


def config(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """The settings in RocketMQ's names, as a properties file."""
    settings = connection.broker.settings
    host, _, port = connection.broker.address.rpartition(":")
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
        "storePathRootDir": connection.broker.path,
    }
    text = "".join(f"{name}={value}\n" for name, value in pairs.items())
    return request.response(body=text.encode())


def update_config(_connection: Connection, _request: RemotingCommand) -> RemotingCommand:
    """Refuse: settings cannot be changed while the broker runs."""
    raise Forbidden(
        "the settings of this broker cannot be changed while it runs; start it with others"
    )


def topics_file(connection: Connection, _request: RemotingCommand) -> dict[str, Any]:
    """``config/topics.json``."""
    content = load_topics(connection.broker.files, connection.broker.path).content
    return _file(content, "topicConfigTable")


def groups_file(connection: Connection, _request: RemotingCommand) -> dict[str, Any]:
    """``config/subscriptionGroup.json``."""
    content = load_groups(connection.broker.files, connection.broker.path).content
    return _file(content, "subscriptionGroupTable", "forbiddenTable")


def delay_offsets_file(connection: Connection, _request: RemotingCommand) -> dict[str, Any]:
    """``config/delayOffset.json``."""
    content = load_delay_offsets(connection.broker.files, connection.broker.path).content
    return _file(content, "offsetTable")


def consumer_offsets_file(connection: Connection, _request: RemotingCommand) -> dict[str, Any]:
    """The offsets of all groups, including changes that are not in the file yet."""
    offsets = connection.broker.offsets
    table = {
        f"{topic}@{group}": queues
        for group in offsets.groups()
        for topic, queues in offsets.of_group(group).items()
    }
    return _file({"offsetTable": table}, "offsetTable")


def _file(content: Mapping[str, Any], *tables: str) -> dict[str, Any]:
    """The content of a configuration file; missing tables are empty."""
    return {"dataVersion": _NO_VERSION, **{name: {} for name in tables}, **content}


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


def rates(connection: Connection, request: RemotingCommand) -> dict[str, Any]:
    """The growth of a count in the last minute, hour and day."""
    name, key = request.fields["statsName"], request.fields["statsKey"]
    is_total = name in (traffic.BROKER_GET, traffic.BROKER_PUT)
    rates = connection.broker.traffic.rates(name, "" if is_total else key)
    if rates is None:
        raise Refused(f"The stats <{name}> <{key}> not exist")
    return {
        f"stats{window.title()}": {"avgpt": 0.0, "sum": rate.count, "tps": rate.per_second}
        for window, rate in rates.items()
    }


def units(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """Units of a queue: physical offset and size of each record, and its tags code."""
    broker, fields = connection.broker, request.fields
    topic, queue_id = fields["topic"], int(fields["queueId"])
    bounds = broker.store.queue_bounds(topic, queue_id)
    if bounds is None:
        raise Refused(f"{queue_id}@{topic} is not exist!")
    low, high = bounds
    content: dict[str, Any] = {"maxQueueIndex": high, "minQueueIndex": low}
    group = fields.get("consumerGroup")
    if group:
        subscription = broker.members.group(group).subscriptions.get(topic)
        content["subscriptionData"] = subscription
        absent = f"{group}@{topic} is not online!"
        content["filterData"] = absent if subscription is None else "null"
    first, count = int(fields["index"]), max(0, min(int(fields["count"]), _MAX_UNITS))
    if not low <= first < high:
        return request.json(content, f"Index {first} of {queue_id}@{topic} is not exist!")
    units = broker.store.queue_units(topic, queue_id, first, count)
    content["queueData"] = [
        {"eval": False, "physicOffset": int(at), "physicSize": int(size), "tagsCode": int(code)}
        for at, size, code in zip(units.offsets, units.sizes, units.tags_codes, strict=True)
    ]
    return request.json(content)
