"""Requests of tools about rates, and about the units of ConsumeQueues.

Source: RocketMQ 5.3.3, ``AdminBrokerProcessor``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from lakelog_broker.broker import Broker
from lakelog_broker.codes import Refused, RequestCode, ResponseCode
from lakelog_broker.remoting.connection import Connection, Handler
from lakelog_broker.remoting.frame import RemotingCommand
from lakelog_broker.state.traffic import BROKER_GET, BROKER_PUT, DAY, HOUR, MINUTE

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
