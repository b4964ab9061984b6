"""Requests of tools about the settings and the members of groups.

Source: RocketMQ 5.3.3, ``AdminBrokerProcessor``.

Requests of tools that are forwarded to the members of a consumer group.

Source: RocketMQ 5.3.3, ``AdminBrokerProcessor.callConsumer`` and ``Broker2Client``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from lakelog.errors import StoreError
from lakelog_broker.broker import Broker
from lakelog_broker.codes import Refused, RequestCode, ResponseCode, body_of
from lakelog_broker.remoting.connection import Answer, Connection, Handler
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


_OFFSET_DIGITS: Final = 16
"""Length of the physical offset, the last part of a message id, in hexadecimal digits."""


class ConsumerRequests:
    """Forwards requests to members of groups."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.status,
        }

    async def running_info(self, _connection: Connection, request: RemotingCommand) -> Answer:
        """The state of a member: its settings, subscriptions, queues and statistics."""
        return await self._passed_on(request, request.fields, b"")

    async def consume(self, _connection: Connection, request: RemotingCommand) -> Answer:
        """Make a member consume a stored message now."""
        fields = {**request.fields, "brokerName": self._broker.settings.name}
        message_id = fields["msgId"]
        try:
            record = self._broker.store.look_up_record(int(message_id[-_OFFSET_DIGITS:], 16))
        except (StoreError, ValueError) as error:
            remark = f"no message has the id {message_id}: {error}"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark) from None
        return await self._passed_on(request, fields, record)

    async def _passed_on(
        self, request: RemotingCommand, fields: dict[str, str], body: bytes
    ) -> RemotingCommand:
        group, client_id = fields["consumerGroup"], fields["clientId"]
        peer = self._peers(group).get(client_id)
        if peer is None:
            remark = f"The Consumer <{group}> <{client_id}> not online"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        try:
            found = await peer.call(RequestCode(request.code), fields, body)
        except TimeoutError:
            remark = f"consumer <{group}> <{client_id}> Timeout"
            raise Refused(ResponseCode.CONSUME_MSG_TIMEOUT, remark) from None
        except ConnectionError as error:
            remark = f"invoke consumer <{group}> <{client_id}> Exception: {error}"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark) from None
        return request.response(found.code, found.remark, found.body, **found.fields)

    async def status(self, _connection: Connection, request: RemotingCommand) -> Answer:
        """The next offsets of a topic's queues, as reported by each member or by one."""
        topic, group = request.fields["topic"], request.fields["group"]
        peers, only = self._peers(group), request.fields.get("clientAddr")
        if not peers:
            remark = f"No Any Consumer online in the consumer group: [{group}]"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        tables = []
        for client_id, peer in peers.items():
            if only in (None, "", client_id):
                fields = {"topic": topic, "group": group}
                found = await peer.call(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, fields)
                if found.code == ResponseCode.SUCCESS and found.body:
                    # The keys are objects, which is not valid JSON, so the text is copied.
                    table = found.body.decode().partition('"messageQueueTable":')[2][:-1]
                    tables.append(f'"{client_id}":{table}')
        return request.response(body=f'{{"consumerTable":{{{",".join(tables)}}}}}'.encode())

    def _peers(self, group: str) -> dict[str, Connection]:
        """The connections of the group's remoting members, by client id."""
        found = self._broker.members.group(group)
        members: Mapping[str, Member] = found.members if found else {}
        return {
            name: each.peer for name, each in members.items() if isinstance(each.peer, Connection)
        }
