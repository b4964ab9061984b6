"""Requests that find messages by key or by physical offset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lakelog.errors import StoreError
from lakelog_broker.broker import Broker
from lakelog_broker.codes import RequestCode, ResponseCode
from lakelog_broker.remoting.connection import Connection, Handler
from lakelog_broker.remoting.frame import RemotingCommand

_MAX_MESSAGES: Final = 64
"""RocketMQ's ``defaultQueryMaxNum``."""
_TIMES_MS: Final = range(10**11, 10**14)  # from 1973 to 5138


def store_time_ms(text: str) -> int:
    """Parse a client's time in ms since 1970, and limit it to the range of the store.

    A time before 1973 becomes 0. Raises ``ValueError``.
    """
    time_ms = int(text)
    return 0 if time_ms < _TIMES_MS.start else min(time_ms, _TIMES_MS[-1])


class LookupRequests:
    """Finds messages, and returns their stored records."""

    def __init__(self, broker: Broker) -> None:
        self._store = broker.store

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {RequestCode.QUERY_MESSAGE: self.query, RequestCode.VIEW_MESSAGE_BY_ID: self.view}

    def query(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The messages with a key, newest first."""
        fields = request.fields
        places = self._store.query_offsets(
            fields["topic"],
            fields["key"],
            since_ms=store_time_ms(fields["beginTimestamp"]),
            until_ms=store_time_ms(fields["endTimestamp"]),
            max_count=max(1, min(int(fields["maxNum"]), _MAX_MESSAGES)),
        )
        if not places:
            remark = "can not find message, maybe time range not correct"
            return request.response(ResponseCode.QUERY_NOT_FOUND, remark)
        body = b"".join([self._store.look_up_record(place) for place in places])
        return request.response(
            body=body, indexLastUpdateTimestamp=0, indexLastUpdatePhyoffset=places[0]
        )

    def view(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The message at a physical offset."""
        offset = int(request.fields["offset"])
        try:
            return request.response(body=self._store.look_up_record(offset))
        except StoreError:
            remark = f"can not find message by the offset, {offset}"
            return request.response(ResponseCode.SYSTEM_ERROR, remark)
