"""Requests about groups: heartbeats, members and locks of queues; and of tools, also settings.

Some are forwarded to members of the group. Source: RocketMQ 5.3.3, ``ClientManageProcessor``,
``AdminBrokerProcessor`` and ``Broker2Client``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from lakelog.errors import StoreError
from lakelog_broker import filtering, state, traffic
from lakelog_broker.broker import Broker
from lakelog_broker.codes import Invalid, Refused, ResponseCode, check_limit
from lakelog_broker.remoting.administration import altered
from lakelog_broker.remoting.frame import RemotingCommand, queue_object
from lakelog_broker.remoting.requests import RequestCode
from lakelog_broker.remoting.server import Connection
from lakelog_queues.delays.delivering import one_of_many
from lakelog_queues.groups.set_aside import RETRY_PREFIX
from lakelog_rocketmq.fastjson import Entries, encode

MAX_GROUPS: Final = 1_000
"""Most groups of one connection; a client has one connection for all its groups."""
MAX_SUBSCRIPTIONS: Final = 1_000
"""Most subscriptions of one consumer."""
_ATTRIBUTES: Final = {
    "lite.bind.topic": r"[%|a-zA-Z0-9_-]{1,127}",
    "lite.sub.client.max.event.cnt": r"\d{2,9}",
    "lite.sub.client.quota": r"-1|\d{1,9}",
    "lite.sub.model": "Shared|Exclusive",
    "lite.sub.reset.offset.exclusive": "true|false",
    "lite.sub.reset.offset.unsubscribe": "true|false",
    "priority.factor": r"100|\d{1,2}",
}
"""Accepted attributes of groups, with patterns of their values."""
_OFFSET_DIGITS: Final = 16
"""Length of the physical offset, the last part of a message id, in hexadecimal digits."""


def heart_beat(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """Renew a client in its groups."""
    broker, content = connection.broker, request.content()
    _check_counts(connection, content)
    members, client_id = broker.members, state.check_client_id(content["clientID"])
    member = state.Member(
        client_id,
        connection,
        time.monotonic(),
        request.language,
        request.version,
        connection.user,
    )
    for each in content.get("consumerDataSet") or ():
        with one_of_many(f"the heartbeat in group {str(each['groupName'])[:300]!r}"):
            _renew(broker, each, member)
    for each in content.get("producerDataSet") or ():
        with one_of_many(f"the heartbeat in producer group {str(each['groupName'])[:300]!r}"):
            members.join_producers(each["groupName"], member)
    return request.response(IS_SUPPORT_HEART_BEAT_V2="true", IS_SUB_CHANGE="true")


def _renew(broker: Broker, content: Mapping[str, Any], member: state.Member) -> None:
    """Renew a client in a group; raises :class:`Refused` for a name that RocketMQ refuses."""
    name = content["groupName"]
    broker.topics.add_group(name)
    with one_of_many(f"the creation of the retry topic of group {name!r}"):
        broker.topics.of_group(RETRY_PREFIX, name)
    group = broker.members.join(name, member)
    group.consume_type = content.get("consumeType", group.consume_type)
    group.message_model = content.get("messageModel", group.message_model)
    group.consume_from_where = content.get("consumeFromWhere", group.consume_from_where)
    data = content.get("subscriptionDataSet")
    if data:  # a short heartbeat has no subscriptions
        group.subscriptions = {known["topic"]: known for known in data}


def unregister(connection: Connection, request: RemotingCommand) -> None:
    """Remove a client from its groups."""
    fields = request.fields
    groups = fields.get("consumerGroup"), fields.get("producerGroup")
    connection.broker.members.leave(fields["clientID"], *groups)
    connection.groups -= set(zip(("consumers", "producers"), groups, strict=True))


def consumer_ids(connection: Connection, request: RemotingCommand) -> dict[str, Any]:
    """The client ids of a consumer group."""
    name = request.fields["consumerGroup"]
    group = connection.broker.members.group(name)
    if not group.members:
        raise Refused(f"no consumer for this group, {name}")
    return {"consumerIdList": list(group.members)}


def lock(connection: Connection, request: RemotingCommand) -> dict[str, Any]:
    """Lock queues for an orderly consumer; the response has the locked ones."""
    content = request.content()
    members = connection.broker.members
    client_id, group = state.check_client_id(content["clientId"]), content["consumerGroup"]
    state.check_group(group)
    locked = members.lock(group, client_id, _queues(connection.broker, content["mqSet"]))
    name = connection.broker.settings.name
    return {"lockOKMQSet": [queue_object(name, *queue) for queue in locked]}


def unlock(connection: Connection, request: RemotingCommand) -> None:
    """Release locks of queues."""
    content = request.content()
    queues = _queues(connection.broker, content["mqSet"])
    connection.broker.members.unlock(content["consumerGroup"], content["clientId"], queues)


def _queues(broker: Broker, asked: Iterable[Mapping[str, Any]]) -> list[tuple[str, int]]:
    """Topic and queue id of each queue that exists."""
    found = ((each["topic"], int(each["queueId"])) for each in asked)
    return [(topic, each) for topic, each in found if each in _queue_ids(broker, topic)]


def check_config(_connection: Connection, request: RemotingCommand) -> None:
    """Check a client's filter expression; raises :class:`Refused`."""
    data = request.content().get("subscriptionData") or {}
    filtering.MessageFilter.of(data.get("subString"), data.get("expressionType"))


def _check_counts(connection: Connection, content: Mapping[str, Any]) -> None:
    """Note the groups of a client; raises :class:`LimitExceeded`."""
    consumers = content.get("consumerDataSet") or ()
    names = {("consumers", each["groupName"]) for each in consumers}
    names |= {("producers", each["groupName"]) for each in content.get("producerDataSet") or ()}
    all_names = connection.groups | names
    check_limit(len(all_names), MAX_GROUPS, "a client with {} groups")
    most = max((len(each.get("subscriptionDataSet") or ()) for each in consumers), default=0)
    check_limit(most, MAX_SUBSCRIPTIONS, "a consumer with {} subscriptions")
    connection.groups = all_names


# --- of tools ---


def set_group(connection: Connection, request: RemotingCommand) -> None:
    """Create or change a group; unused settings are stored, too, for a RocketMQ broker."""
    content, topics = request.content(), connection.broker.topics
    group = state.check_group(content["groupName"])
    known = topics.group_settings(group)["attributes"]
    changes = [(str(name), str(value)) for name, value in (content.get("attributes") or {}).items()]
    content["attributes"] = altered(known, changes, _ATTRIBUTES)
    try:
        topics.set_group(group, content)
    except ValueError as error:
        raise Invalid(str(error)) from None


def delete_group(connection: Connection, request: RemotingCommand) -> None:
    """Remove a group from the configuration, and its offsets if the request has that flag."""
    broker, group = connection.broker, request.fields["groupName"]
    broker.topics.remove_group(group)
    broker.traffic.forget(group)
    if request.fields.get("cleanOffset", request.fields.get("removeOffset")) == "true":
        broker.offsets.forget(group)


def group_config(connection: Connection, request: RemotingCommand) -> dict[str, Any]:
    """The configuration of a group; the default for an unknown group."""
    return connection.broker.topics.group_settings(request.fields["group"])


def consumers(connection: Connection, request: RemotingCommand) -> dict[str, Any]:
    """The members of a group and its subscriptions."""
    name = request.fields["consumerGroup"]
    group = connection.broker.members.group(name)
    if not group.members:
        raise Refused(f"the consumer group[{name}] not online", ResponseCode.CONSUMER_NOT_ONLINE)
    return {
        "connectionSet": _connections(group.members.values()),
        "consumeFromWhere": group.consume_from_where,
        "consumeType": group.consume_type,
        "messageModel": group.message_model,
        "subscriptionTable": dict(group.subscriptions),
    }


def producers(connection: Connection, request: RemotingCommand) -> dict[str, Any]:
    """The members of a producer group."""
    name = request.fields["producerGroup"]
    members = connection.broker.members.producers.get(name)
    if not members:
        raise Refused(f"the producer group[{name}] not exist")
    return {"connectionSet": _connections(members.values())}


def all_producers(connection: Connection, _request: RemotingCommand) -> dict[str, Any]:
    """The members of all producer groups."""
    groups, now_s = connection.broker.members.producers, time.monotonic()
    now_ms = time.time_ns() // 1_000_000
    content = {
        name: [
            {
                "clientId": each.client_id,
                "language": each.language,
                "lastUpdateTimestamp": now_ms - int(1000 * (now_s - each.seen_s)),
                "remoteIP": f"/{each.peer.address}",
                "version": each.version,
            }
            for each in members.values()
        ]
        for name, members in groups.items()
        if members
    }
    return {"data": content}


def groups_of_topic(connection: Connection, request: RemotingCommand) -> dict[str, Any]:
    """The groups that subscribe to a topic, or have an offset in it."""
    broker, topic = connection.broker, request.fields["topic"]
    known = {*broker.members.groups, *broker.offsets.groups()}
    return {"groupList": sorted(group for group in known if topic in broker.topics_of_group(group))}


def topics_of_group(connection: Connection, request: RemotingCommand) -> dict[str, Any]:
    """The topics in which a group has an offset."""
    return {"topicList": sorted(connection.broker.offsets.of_group(request.fields["group"]))}


def subscription(connection: Connection, request: RemotingCommand) -> dict[str, Any]:
    """The subscription of a group to a topic; null if the group has none."""
    name, topic = request.fields["group"], request.fields["topic"]
    found = connection.broker.members.group(name).subscriptions.get(topic)
    return {"group": name, "subscriptionData": found, "topic": topic}


def _connections(members: Iterable[state.Member]) -> list[dict[str, Any]]:
    return [
        {
            "clientAddr": each.peer.address,
            "clientId": each.client_id,
            "language": each.language,
            "version": each.version,
        }
        for each in members
    ]


async def running_info(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """The state of a member: its settings, subscriptions, queues and statistics."""
    return await _passed_on(connection.broker, request, request.fields, b"")


async def consume(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """Make a member consume a stored message now."""
    fields = {**request.fields, "brokerName": connection.broker.settings.name}
    message_id = fields["msgId"]
    try:
        record = connection.broker.store.look_up_record(int(message_id[-_OFFSET_DIGITS:], 16))
    except (StoreError, ValueError) as error:
        raise Refused(f"no message has the id {message_id}: {error}") from None
    return await _passed_on(connection.broker, request, fields, record)


async def _passed_on(
    broker: Broker, request: RemotingCommand, fields: dict[str, str], body: bytes
) -> RemotingCommand:
    group, client_id = fields["consumerGroup"], fields["clientId"]
    peer = _peers(broker, group).get(client_id)
    if peer is None:
        raise Refused(f"The Consumer <{group}> <{client_id}> not online")
    try:
        found = await peer.call(RequestCode(request.code), fields, body)
    except TimeoutError:
        remark = f"consumer <{group}> <{client_id}> Timeout"
        raise Refused(remark, ResponseCode.CONSUME_MSG_TIMEOUT) from None
    except ConnectionError as error:
        raise Refused(f"invoke consumer <{group}> <{client_id}> Exception: {error}") from None
    return request.response(found.code, found.remark, found.body, **found.fields)


async def consumer_offsets(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """The next offsets of a topic's queues, as reported by each member or by one."""
    topic, group = request.fields["topic"], request.fields["group"]
    peers, only = _peers(connection.broker, group), request.fields.get("clientAddr")
    if not peers:
        raise Refused(f"No Any Consumer online in the consumer group: [{group}]")
    tables = []
    for client_id, peer in peers.items():
        if only in (None, "", client_id):
            fields = {"topic": topic, "group": group}
            found = await peer.call(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, fields)
            if found.code == ResponseCode.SUCCESS and found.body:
                # The keys are objects, which is not valid JSON, so the text is copied.
                table = found.body.decode().partition('"messageQueueTable":')[2][:-1]
                tables.append(f"{encode(client_id).decode()}:{table}")
    return request.response(body=f'{{"consumerTable":{{{",".join(tables)}}}}}'.encode())


def _peers(broker: Broker, group: str) -> dict[str, Connection]:
    """The connections of the group's remoting members, by client id."""
    members = broker.members.group(group).members
    return {name: each.peer for name, each in members.items() if isinstance(each.peer, Connection)}


def progress(connection: Connection, request: RemotingCommand) -> dict[str, Any]:
    """The offsets of a group, with the end offsets of the queues."""
    group, only = request.fields["consumerGroup"], request.fields.get("topic")
    topics = [only] if only else connection.broker.topics_of_group(group)
    return _progress(connection.broker, group, topics)


def all_progress(connection: Connection, _request: RemotingCommand) -> dict[str, Any]:
    """The offsets of all groups, and the total number of messages that are not consumed."""
    broker, behind, groups = connection.broker, 0, list[dict[str, Any]]()
    for group in sorted(broker.topics.groups()):
        topics = sorted(broker.offsets.of_group(group))
        groups.append({group: [_progress(broker, group, [topic]) for topic in topics]})
        rows = (row for topic in topics for _, row in _rows(broker, group, topic))
        behind += sum(row["brokerOffset"] - row["consumerOffset"] for row in rows)
    return {"brokerAddr": broker.address, "consumeStatsList": groups, "totalDiff": behind}


def _progress(broker: Broker, group: str, topics: Iterable[str]) -> dict[str, Any]:
    rows, per_second = Entries(), 0.0
    for topic in topics:
        rows += _rows(broker, group, topic)
        rates = broker.traffic.rates(traffic.GROUP_GET, f"{topic}@{group}")
        per_second += rates[traffic.MINUTE].per_second if rates else 0
    return {"consumeTps": per_second, "offsetTable": rows}


def _rows(
    broker: Broker, group: str, topic: str
) -> Iterator[tuple[dict[str, Any], dict[str, int]]]:
    committed = broker.offsets.of_group(group).get(topic, {})
    for queue_id in _queue_ids(broker, topic):
        offset = committed.get(queue_id, 0)
        pulled = broker.traffic.pulled_offset(group, topic, queue_id)
        row = {
            "brokerOffset": broker.bounds(topic, queue_id)[1],
            "consumerOffset": offset,
            "lastTimestamp": broker.time_of(topic, queue_id, offset - 1),
            "pullOffset": max(offset, pulled),
        }
        yield queue_object(broker.settings.name, topic, queue_id), row


def time_span(connection: Connection, request: RemotingCommand) -> dict[str, Any]:
    """Per queue, the store times of its first, its last and the group's last message."""
    broker = connection.broker
    topic, group = request.fields["topic"], request.fields["group"]
    broker.topics.require(topic)
    found = []
    for queue_id in _queue_ids(broker, topic):
        low, high = broker.bounds(topic, queue_id)
        offset = broker.offsets.get(group, topic, queue_id) or 0
        first, last, consumed, following = (
            broker.time_of(topic, queue_id, each)
            for each in (low, high - 1, max(low, offset - 1), offset)
        )
        now_ms = time.time_ns() // 1_000_000
        found.append(
            {
                "consumeTimeStamp": consumed,
                "delayTime": now_ms - following if following and offset < high else 0,
                "maxTimeStamp": last,
                "messageQueue": queue_object(broker.settings.name, topic, queue_id),
                "minTimeStamp": first,
            }
        )
    return {"consumeTimeSpanSet": found}


def reset_offsets(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """Set a group's offsets by time (-1: the end), or one queue's offset; notify its members.

    Without ``isForce``, a reset by time moves no offset forward.
    """
    broker, fields = connection.broker, request.fields
    topic, group, time_ms = fields["topic"], fields["group"], int(fields["timestamp"])
    only, wanted = int(fields.get("queueId") or -1), int(fields.get("offset") or -1)
    broker.topics.require(topic)
    rows = Entries()
    for queue_id in _queue_ids(broker, topic) if only < 0 else [only]:
        known = broker.offsets.get(group, topic, queue_id)
        low, high = broker.bounds(topic, queue_id)
        if only >= 0 and wanted >= 0:
            if not low <= wanted <= high + 1:
                raise Refused(f"Target offset {wanted} not in consume queue range [{low}-{high}]")
            found = min(wanted, high)  # RocketMQ takes one more, and skips the next message then
        else:
            is_end = time_ms == -1 or low == high
            found = high if is_end else broker.store.offset_by_time(topic, queue_id, time_ms)
            if known is not None and found > known and fields.get("isForce") != "true":
                found = known
        broker.offsets.set(group, topic, queue_id, found)
        rows.append((queue_object(broker.settings.name, topic, queue_id), found))
    body = encode({"offsetTable": rows})
    header = {"topic": topic, "group": group, "timestamp": str(time_ms)}
    for member in broker.members.group(group).members.values():
        if isinstance(member.peer, Connection):
            member.peer.notify(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body)
    return request.response(body=body)


def clone_offsets(connection: Connection, request: RemotingCommand) -> None:
    """Copy the offsets of a group to another group, for one topic or for all."""
    fields, offsets = request.fields, connection.broker.offsets
    for topic, queues in offsets.of_group(fields["srcGroup"]).items():
        if fields.get("topic") in (None, "", topic):
            for queue_id, offset in queues.items():
                offsets.set(fields["destGroup"], topic, queue_id, offset)


def _queue_ids(broker: Broker, topic: str) -> range:
    found = broker.topics.find(topic)
    return range(found.queue_count if found else 0)
