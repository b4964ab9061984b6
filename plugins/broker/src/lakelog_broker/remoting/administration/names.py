"""Requests of tools to a name server: its settings, and lists of topics.

Source: RocketMQ 5.3.3, ``DefaultRequestProcessor`` and ``KVConfigManager``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from lakelog_broker.appending import SYSTEM_TOPICS
from lakelog_broker.broker import Broker
from lakelog_broker.codes import RequestCode, ResponseCode
from lakelog_broker.remoting.connection import Connection, Handler
from lakelog_broker.remoting.frame import RemotingCommand


class NameRequests:
    """Stores key-value pairs by namespace, in memory only, and lists topics."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._texts: dict[str, dict[str, str]] = {}

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.PUT_KV_CONFIG: self.put,
            RequestCode.GET_KV_CONFIG: self.get,
            RequestCode.DELETE_KV_CONFIG: self.delete,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.all_of,
            RequestCode.GET_NAMESRV_CONFIG: self.config,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.system_names,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_topics,
        }

    def put(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Set the value of a key, until the broker ends."""
        fields = request.fields
        self._texts.setdefault(fields["namespace"], {})[fields["key"]] = fields["value"]
        return request.response()

    def get(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The value of a key."""
        namespace, key = request.fields["namespace"], request.fields["key"]
        found = self._texts.get(namespace, {}).get(key)
        if found is None:
            remark = f"No config item, Namespace: {namespace} Key: {key}"
            return request.response(ResponseCode.QUERY_NOT_FOUND, remark)
        return request.response(value=found)

    def delete(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Remove a key, if it exists."""
        self._texts.get(request.fields["namespace"], {}).pop(request.fields["key"], None)
        return request.response()

    def all_of(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """All keys and values of a namespace."""
        namespace = request.fields["namespace"]
        found = self._texts.get(namespace)
        if found is None:
            remark = f"No config item, Namespace: {namespace}"
            return request.response(ResponseCode.QUERY_NOT_FOUND, remark)
        return request.response(body=json.dumps({"table": found}).encode())

    def config(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The settings of this broker's name server, as a properties file."""
        host, _, port = self._broker.address.rpartition(":")
        text = f"bindAddress={host}\nlistenPort={port}\nenableTopicList=true\n"
        return request.response(body=text.encode())

    def topics_of_cluster(
        self, _connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        """The names of all topics, if the cluster is this one."""
        is_ours = request.fields["cluster"] == self._broker.settings.cluster
        names = [each.topic for each in self._broker.topics] if is_ours else []
        return request.response(body=json.dumps({"topicList": names}).encode())

    def system_names(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The topics by which tools find the cluster and the broker."""
        settings = self._broker.settings
        content = {
            "brokerAddr": self._broker.address,
            "topicList": [settings.cluster, settings.name],
        }
        return request.response(body=json.dumps(content).encode())

    def system_topics(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The names of RocketMQ's own topics, whether they exist here or not."""
        return request.response(body=json.dumps({"topicList": sorted(SYSTEM_TOPICS)}).encode())
