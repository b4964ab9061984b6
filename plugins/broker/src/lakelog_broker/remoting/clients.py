"""Requests about clients: heartbeats, members of groups, and locks of queues."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from lakelog_broker.codes import LimitExceeded, Refused, ResponseCode
from lakelog_broker.filtering import MessageFilter
from lakelog_broker.remoting.frame import RemotingCommand
from lakelog_broker.remoting.server import Connection
from lakelog_broker.state.groups import Member
from lakelog_queues.groups.set_aside import RETRY_PREFIX

MAX_GROUPS: Final = 1_000
"""Most groups of one connection; a client has one connection for all its groups."""
MAX_SUBSCRIPTIONS: Final = 1_000
"""Most subscriptions of one consumer."""


def heart_beat(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """Renew a client in its groups."""
    broker = connection.broker
    content = request.content()
    _check_counts(connection, content)
    members = broker.members
    member = Member(
        str(content["clientID"]),
        connection,
        time.monotonic(),
        request.language,
        request.version,
    )
    for each in content.get("consumerDataSet") or ():
        name = each["groupName"]
        broker.topics.add_group(name)
        broker.topics.of_group(RETRY_PREFIX, name)
        group = members.join(name, member)
        group.consume_type = each.get("consumeType", group.consume_type)
        group.message_model = each.get("messageModel", group.message_model)
        group.consume_from_where = each.get("consumeFromWhere", group.consume_from_where)
        data = each.get("subscriptionDataSet")
        if data:  # a short heartbeat has no subscriptions
            group.subscriptions = {known["topic"]: known for known in data}
    for each in content.get("producerDataSet") or ():
        members.join_producers(each["groupName"], member)
    return request.response(IS_SUPPORT_HEART_BEAT_V2="true", IS_SUB_CHANGE="true")


def unregister(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """Remove a client from its groups."""
    fields = request.fields
    groups = fields.get("consumerGroup"), fields.get("producerGroup")
    connection.broker.members.leave(fields["clientID"], *groups)
    connection.groups -= set(zip(("consumers", "producers"), groups, strict=True))
    return request.response()


def consumers(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """The client ids of a consumer group."""
    name = request.fields["consumerGroup"]
    group = connection.broker.members.group(name)
    if group is None or not group.members:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
    return request.json({"consumerIdList": list(group.members)})


def lock(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """Lock queues for an orderly consumer; the response has the locked ones."""
    content = request.content()
    asked = {(each["topic"], int(each["queueId"])): each for each in content["mqSet"]}
    locked = connection.broker.members.lock(content["consumerGroup"], content["clientId"], asked)
    queues = [asked[queue] for queue in locked]
    return request.json({"lockOKMQSet": queues})


def unlock(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """Release locks of queues."""
    content = request.content()
    queues = [(each["topic"], int(each["queueId"])) for each in content["mqSet"]]
    connection.broker.members.unlock(content["consumerGroup"], content["clientId"], queues)
    return request.response()


def check_config(_connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """Check a client's filter expression; raises :class:`Refused`."""
    data = request.content().get("subscriptionData") or {}
    MessageFilter.of(data.get("subString"), data.get("expressionType"))
    return request.response()


def _check_counts(connection: Connection, content: Mapping[str, Any]) -> None:
    """Note the groups of a client; raises :class:`LimitExceeded`."""
    consumers = content.get("consumerDataSet") or ()
    names = {("consumers", each["groupName"]) for each in consumers}
    names |= {("producers", each["groupName"]) for each in content.get("producerDataSet") or ()}
    all_names = connection.groups | names
    if len(all_names) > MAX_GROUPS:
        remark = f"a client with {len(all_names)} groups; at most {MAX_GROUPS} are taken"
        raise LimitExceeded(remark)
    most = max((len(each.get("subscriptionDataSet") or ()) for each in consumers), default=0)
    if most > MAX_SUBSCRIPTIONS:
        remark = f"a consumer with {most} subscriptions; at most {MAX_SUBSCRIPTIONS} are taken"
        raise LimitExceeded(remark)
    connection.groups = all_names
