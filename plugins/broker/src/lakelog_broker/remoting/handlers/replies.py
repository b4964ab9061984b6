"""Replies to the requests of producers (``producer.request``).

A request is a message with the client id of its producer. The consumer's reply is stored, and
pushed to that client; without a connected client it is refused. Source: RocketMQ 5.3.3,
``ReplyMessageProcessor``.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Mapping
from typing import Final

from lakelog_broker.broker import Broker
from lakelog_broker.codes import Refused, RequestCode, ResponseCode
from lakelog_broker.properties import property_value, with_properties
from lakelog_broker.remoting.connection import Answer, Connection, Handler
from lakelog_broker.remoting.frame import RemotingCommand
from lakelog_broker.remoting.handlers.sending import SendHeader, SendRequests

_REPLY_TO: Final = b"REPLY_TO_CLIENT"


class ReplyRequests:
    """Stores replies, and pushes them to the waiting clients."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._sending = broker, SendRequests(broker)

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.SEND_REPLY_MESSAGE: self.reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.reply,
        }

    def reply(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | Awaitable[Answer]:
        """Push a reply to its client, and store it; raises :class:`Refused`."""
        header = SendHeader.of(request)
        client_id = (property_value(header.properties, _REPLY_TO) or b"").decode()
        peer = self._peer_of(client_id)
        if peer is None:
            remark = f"process reply message fail, channel of <{client_id}> not found."
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        sent = self._sending.send(connection, request)
        now = str(time.time_ns() // 1_000_000)
        fields = {
            "bornHost": connection.peer,
            "storeHost": self._broker.address,
            "storeTimestamp": now,
            "producerGroup": header.group,
            "topic": header.topic,
            "defaultTopic": header.default_topic,
            "defaultTopicQueueNums": str(header.default_queues),
            "queueId": str(header.queue_id),
            "sysFlag": str(header.sys_flag),
            "bornTimestamp": str(header.born_timestamp_ms),
            "flag": str(header.flag),
            "properties": with_properties(header.properties, PUSH_REPLY_TIME=now).decode(),
            "reconsumeTimes": str(header.reconsume_times),
            "unitMode": "false",
        }
        peer.notify(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, fields, request.body)
        return sent

    def _peer_of(self, client_id: str) -> Connection | None:
        for members in self._broker.members.producer_groups().values():
            member = members.get(client_id)
            if member is not None and isinstance(member.peer, Connection):
                return member.peer
        return None
