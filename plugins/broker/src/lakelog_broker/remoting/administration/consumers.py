"""Requests of tools that are forwarded to the members of a consumer group.

Source: RocketMQ 5.3.3, ``AdminBrokerProcessor.callConsumer`` and ``Broker2Client``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lakelog.errors import StoreError
from lakelog_broker.broker import Broker
from lakelog_broker.codes import Refused, RequestCode, ResponseCode
from lakelog_broker.remoting.connection import Answer, Connection, Handler
from lakelog_broker.remoting.frame import RemotingCommand
from lakelog_broker.state.members import Member

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
