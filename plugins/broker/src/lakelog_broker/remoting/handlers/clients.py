"""Requests about clients: heartbeats, members of groups, and locks of queues.

Requests to a name server: the routes of topics, and the cluster.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Final

from lakelog_broker.broker import Broker
from lakelog_broker.codes import LimitExceeded, Refused, RequestCode, ResponseCode, body_of
from lakelog_broker.filtering import MessageFilter
from lakelog_broker.remoting.connection import Connection, Handler
from lakelog_broker.remoting.frame import RemotingCommand
from lakelog_broker.state.members import Member
from lakelog_queues.groups.set_aside import RETRY_PREFIX

MAX_GROUPS: Final = 1_000
"""Most groups of one connection; a client has one connection for all its groups."""
MAX_SUBSCRIPTIONS: Final = 1_000
"""Most subscriptions of one consumer."""


class ClientRequests:
    """Keeps the members of groups."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.HEART_BEAT: self.heart_beat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumers,
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_config,
        }

    def heart_beat(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Renew a client in its groups."""
        content = body_of(request)
        _check_counts(connection, content)
        members = self._broker.members
        member = Member(
            str(content["clientID"]),
            connection,
            time.monotonic(),
            request.language,
            request.version,
        )
        for each in content.get("consumerDataSet") or ():
            name = each["groupName"]
            self._broker.topics.add_group(name)
            self._broker.topics.of_group(RETRY_PREFIX, name)
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

    def unregister(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Remove a client from its groups."""
        fields = request.fields
        groups = fields.get("consumerGroup"), fields.get("producerGroup")
        self._broker.members.leave(fields["clientID"], *groups)
        connection.groups -= set(zip(("consumers", "producers"), groups, strict=True))
        return request.response()

    def consumers(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The client ids of a consumer group."""
        name = request.fields["consumerGroup"]
        group = self._broker.members.group(name)
        if group is None or not group.members:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
        return request.response(body=json.dumps({"consumerIdList": list(group.members)}).encode())

    def lock(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Lock queues for an orderly consumer; the response has the locked ones."""
        content = body_of(request)
        asked = {(each["topic"], int(each["queueId"])): each for each in content["mqSet"]}
        locked = self._broker.members.lock(content["consumerGroup"], content["clientId"], asked)
        queues = [asked[queue] for queue in locked]
        return request.response(body=json.dumps({"lockOKMQSet": queues}).encode())

    def unlock(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Release locks of queues."""
        content = body_of(request)
        queues = [(each["topic"], int(each["queueId"])) for each in content["mqSet"]]
        self._broker.members.unlock(content["consumerGroup"], content["clientId"], queues)
        return request.response()

    def check_config(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Check a client's filter expression; raises :class:`Refused`."""
        data = body_of(request).get("subscriptionData") or {}
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


class RouteRequests:
    """Answers with routes to this broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.cluster,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.topics,
        }

    def route(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The route of a topic: its number of queues, and this broker's address."""
        topic = request.fields["topic"]
        found = self._broker.topics.find(topic)
        if found is None:
            remark = f"No topic route info in name server for the topic: {topic}"
            return request.response(ResponseCode.TOPIC_NOT_EXIST, remark)
        queues = {
            "brokerName": self._broker.settings.name,
            "perm": found.permission,
            "readQueueNums": found.read_queues,
            "topicSysFlag": 0,
            "writeQueueNums": found.write_queues,
        }
        content = {
            "brokerDatas": [self._broker_data()],
            "filterServerTable": {},
            "queueDatas": [queues],
        }
        return request.response(body=json.dumps(content).encode())

    def cluster(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The cluster, with this broker as its only one."""
        settings = self._broker.settings
        content = {
            "brokerAddrTable": {settings.name: self._broker_data()},
            "clusterAddrTable": {settings.cluster: [settings.name]},
        }
        return request.response(body=json.dumps(content).encode())

    def topics(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The names of all topics."""
        names = [each.topic for each in self._broker.topics]
        return request.response(body=json.dumps({"topicList": names}).encode())

    def _broker_data(self) -> dict[str, Any]:
        settings = self._broker.settings
        return {
            "brokerAddrs": {"0": self._broker.address},
            "brokerName": settings.name,
            "cluster": settings.cluster,
            "enableActingMaster": False,
        }
