"""Requests of tools about the settings and the members of groups.

Source: RocketMQ 5.3.3, ``AdminBrokerProcessor``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

from lakelog_broker.bodies import body_of
from lakelog_broker.broker import Broker
from lakelog_broker.codes import Refused, RequestCode, ResponseCode
from lakelog_broker.remoting.connection import Connection, Handler
from lakelog_broker.remoting.frame import RemotingCommand
from lakelog_broker.state.members import Member


class GroupRequests:
    """Describes groups, and changes their settings."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.config,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumers,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producers,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.groups_of_topic,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.topics_of_group,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.subscription,
        }

    def update(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Create or change a group; unused settings are stored, too, for a RocketMQ broker."""
        content = body_of(request)
        try:
            self._broker.topics.set_group(str(content["groupName"]), content)
        except ValueError as error:
            raise Refused(ResponseCode.INVALID_PARAMETER, str(error)) from None
        return request.response()

    def delete(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Remove a group from the configuration, and its offsets if the request has that flag."""
        group = request.fields["groupName"]
        self._broker.topics.remove_group(group)
        self._broker.traffic.forget(group)
        if request.fields.get("cleanOffset", request.fields.get("removeOffset")) == "true":
            self._broker.offsets.forget(group)
        return request.response()

    def config(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The configuration of a group; the default for an unknown group."""
        found = self._broker.topics.group_settings(request.fields["group"])
        return request.response(body=json.dumps(found).encode())

    def consumers(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The members of a group and its subscriptions."""
        name = request.fields["consumerGroup"]
        group = self._broker.members.group(name)
        if group is None or not group.members:
            remark = f"the consumer group[{name}] not online"
            raise Refused(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        content = {
            "connectionSet": _connections(group.members.values()),
            "consumeFromWhere": group.consume_from_where,
            "consumeType": group.consume_type,
            "messageModel": group.message_model,
            "subscriptionTable": dict(group.subscriptions),
        }
        return request.response(body=json.dumps(content).encode())

    def producers(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The members of a producer group."""
        name = request.fields["producerGroup"]
        members = self._broker.members.producers(name)
        if not members:
            remark = f"the producer group[{name}] not exist"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        content = {"connectionSet": _connections(members)}
        return request.response(body=json.dumps(content).encode())

    def all_producers(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The members of all producer groups."""
        groups, now_s = self._broker.members.producer_groups(), time.monotonic()
        now_ms = time.time_ns() // 1_000_000
        content = {
            name: [
                {
                    "clientId": each.client_id,
                    "language": each.language,
                    "lastUpdateTimestamp": now_ms - int(1000 * (now_s - each.seen_s)),
                    "remoteIP": f"/{getattr(each.peer, 'peer', '')}",
                    "version": each.version,
                }
                for each in members.values()
            ]
            for name, members in groups.items()
            if members
        }
        return request.response(body=json.dumps({"data": content}).encode())

    def groups_of_topic(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The groups that subscribe to a topic, or have an offset in it."""
        topic = request.fields["topic"]
        known = {*self._broker.members.groups(), *self._broker.offsets.groups()}
        groups = sorted(group for group in known if topic in self._broker.topics_of_group(group))
        return request.response(body=json.dumps({"groupList": groups}).encode())

    def topics_of_group(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The topics in which a group has an offset."""
        topics = sorted(self._broker.offsets.of_group(request.fields["group"]))
        return request.response(body=json.dumps({"topicList": topics}).encode())

    def subscription(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The subscription of a group to a topic; null if the group has none."""
        name, topic = request.fields["group"], request.fields["topic"]
        group = self._broker.members.group(name)
        found = group.subscriptions.get(topic) if group else None
        content = {"group": name, "subscriptionData": found, "topic": topic}
        return request.response(body=json.dumps(content).encode())


def _connections(members: Iterable[Member]) -> list[dict[str, Any]]:
    return [
        {
            "clientAddr": getattr(each.peer, "peer", ""),
            "clientId": each.client_id,
            "language": each.language,
            "version": each.version,
        }
        for each in members
    ]
