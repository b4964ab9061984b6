"""Requests to a name server: the routes of topics, and the cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lakelog_broker.broker import Broker
from lakelog_broker.codes import RequestCode, ResponseCode
from lakelog_broker.remoting.connection import Connection, Handler
from lakelog_broker.remoting.frame import RemotingCommand


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
