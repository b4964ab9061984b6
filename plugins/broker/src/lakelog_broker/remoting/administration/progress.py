"""Requests of tools about the offsets of groups: progress, resets, and copies.

Source: RocketMQ 5.3.3, ``AdminBrokerProcessor`` and ``Broker2Client``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lakelog_broker.broker import Broker
from lakelog_broker.codes import Refused, RequestCode, ResponseCode, object_keys, queue_object
from lakelog_broker.remoting.connection import Connection, Handler
from lakelog_broker.remoting.frame import RemotingCommand
from lakelog_broker.state.traffic import GROUP_GET, MINUTE


class ProgressRequests:
    """Describes and changes the offsets of groups."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.GET_CONSUME_STATS: self.stats,
            RequestCode.GET_BROKER_CONSUME_STATS: self.all_stats,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.time_span,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset,
            RequestCode.CLONE_GROUP_OFFSET: self.clone,
        }

    def stats(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The offsets of a group, with the end offsets of the queues."""
        group, only = request.fields["consumerGroup"], request.fields.get("topic")
        topics = [only] if only else self._broker.topics_of_group(group)
        return request.response(body=self._stats(group, topics).encode())

    def all_stats(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The offsets of all groups, and the total number of messages that are not consumed."""
        behind, groups = 0, list[str]()
        for group in sorted(self._broker.topics.groups()):
            topics = sorted(self._broker.offsets.of_group(group))
            tables = ",".join(self._stats(group, [topic]) for topic in topics)
            groups.append(f"{{{json.dumps(group)}:[{tables}]}}")
            rows = (row for topic in topics for _, row in self._rows(group, topic))
            behind += sum(row["brokerOffset"] - row["consumerOffset"] for row in rows)
        head = f'"brokerAddr":{json.dumps(self._broker.address)},"totalDiff":{behind}'
        body = f'{{{head},"consumeStatsList":[{",".join(groups)}]}}'
        return request.response(body=body.encode())

    def _stats(self, group: str, topics: Iterable[str]) -> str:
        rows, per_second = list[tuple[dict[str, Any], dict[str, int]]](), 0.0
        for topic in topics:
            rows += self._rows(group, topic)
            rates = self._broker.traffic.rates(GROUP_GET, f"{topic}@{group}")
            per_second += rates[MINUTE].per_second if rates else 0
        return f'{{"consumeTps":{per_second},"offsetTable":{object_keys(rows)}}}'

    def _rows(self, group: str, topic: str) -> Iterator[tuple[dict[str, Any], dict[str, int]]]:
        committed = self._broker.offsets.of_group(group).get(topic, {})
        for queue_id in self._queues(topic):
            offset = committed.get(queue_id, 0)
            pulled = self._broker.traffic.pulled_offset(group, topic, queue_id)
            row = {
                "brokerOffset": self._broker.bounds(topic, queue_id)[1],
                "consumerOffset": offset,
                "lastTimestamp": self._broker.time_of(topic, queue_id, offset - 1),
                "pullOffset": max(offset, pulled),
            }
            yield queue_object(self._broker.settings.name, topic, queue_id), row

    def time_span(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Per queue, the store times of its first, its last and the group's last message."""
        topic, group = request.fields["topic"], request.fields["group"]
        self._broker.topics.require(topic)
        found = []
        for queue_id in self._queues(topic):
            low, high = self._broker.bounds(topic, queue_id)
            offset = self._broker.offsets.get(group, topic, queue_id) or 0
            first, last, consumed, following = (
                self._broker.time_of(topic, queue_id, each)
                for each in (low, high - 1, max(low, offset - 1), offset)
            )
            now_ms = time.time_ns() // 1_000_000
            found.append(
                {
                    "consumeTimeStamp": consumed,
                    "delayTime": now_ms - following if following and offset < high else 0,
                    "maxTimeStamp": last,
                    "messageQueue": queue_object(self._broker.settings.name, topic, queue_id),
                    "minTimeStamp": first,
                }
            )
        return request.response(body=json.dumps({"consumeTimeSpanSet": found}).encode())

    def reset(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Set a group's offsets by time (-1: the end), or one queue's offset; notify its members.

        Without ``isForce``, a reset by time moves no offset forward.
        """
        fields = request.fields
        topic, group, time_ms = fields["topic"], fields["group"], int(fields["timestamp"])
        only, wanted = int(fields.get("queueId") or -1), int(fields.get("offset") or -1)
        self._broker.topics.require(topic)
        rows = []
        for queue_id in self._queues(topic) if only < 0 else [only]:
            known = self._broker.offsets.get(group, topic, queue_id)
            if only >= 0 and wanted >= 0:
                found = self._in_queue(topic, queue_id, wanted)
            else:
                found = self._offset_at(topic, queue_id, time_ms)
                if known is not None and found > known and fields.get("isForce") != "true":
                    found = known
            self._broker.offsets.set(group, topic, queue_id, found)
            rows.append((queue_object(self._broker.settings.name, topic, queue_id), found))
        body = f'{{"offsetTable":{object_keys(rows)}}}'.encode()
        members = self._broker.members.group(group)
        header = {"topic": topic, "group": group, "timestamp": str(time_ms)}
        for member in members.members.values() if members else ():
            if isinstance(member.peer, Connection):
                member.peer.notify(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body)
        return request.response(body=body)

    def clone(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Copy the offsets of a group to another group, for one topic or for all."""
        fields, offsets = request.fields, self._broker.offsets
        for topic, queues in offsets.of_group(fields["srcGroup"]).items():
            if fields.get("topic") in (None, "", topic):
                for queue_id, offset in queues.items():
                    offsets.set(fields["destGroup"], topic, queue_id, offset)
        return request.response()

    def _queues(self, topic: str) -> range:
        found = self._broker.topics.find(topic)
        return range(max(found.read_queues, found.write_queues) if found else 0)

    def _in_queue(self, topic: str, queue_id: int, offset: int) -> int:
        low, high = self._broker.bounds(topic, queue_id)
        if not low <= offset <= high + 1:
            remark = f"Target offset {offset} not in consume queue range [{low}-{high}]"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        return offset

    def _offset_at(self, topic: str, queue_id: int, time_ms: int) -> int:
        low, high = self._broker.bounds(topic, queue_id)
        if time_ms == -1 or low == high:
            return high
        return self._broker.store.offset_by_time(topic, queue_id, time_ms)
