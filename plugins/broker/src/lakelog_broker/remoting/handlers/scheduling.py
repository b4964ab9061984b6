"""Requests about waiting messages: ends of transactions, and recalls of timer messages."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from lakelog import PutResult
from lakelog_broker.broker import Broker
from lakelog_broker.codes import Refused, RequestCode, ResponseCode
from lakelog_broker.remoting.connection import Answer, Connection, Handler
from lakelog_broker.remoting.frame import RemotingCommand
from lakelog_broker.scheduled.recall import RecallHandle
from lakelog_broker.scheduled.transactions import Transactions

_OUTCOMES: Mapping[int, bool | None] = {8: True, 12: False, 0: None}


class SchedulingRequests:
    """Ends transactions and recalls timer messages."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.END_TRANSACTION: self.end_transaction,
            RequestCode.RECALL_MESSAGE: self.recall,
        }

    def end_transaction(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Commit a transaction or roll it back; with an unknown outcome, a check follows later."""
        fields = request.fields
        transactions: Transactions = self._broker.transactions
        outcome = int(fields["commitOrRollback"])
        if outcome not in _OUTCOMES:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"commitOrRollback must not be {outcome}")
        places = int(fields["commitLogOffset"]), int(fields["tranStateTableOffset"])
        if not transactions.end(*places, _OUTCOMES[outcome], fields["producerGroup"]):
            raise Refused(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        return request.response()

    def recall(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | Awaitable[Answer]:
        """Recall a waiting timer message by the handle in the response to its send.

        Raises :class:`Refused`.
        """
        fields, broker = request.fields, self._broker
        topic = fields["topic"]
        if broker.topics.find(topic) is None:
            remark = f"recall failed, the topic[{topic}] not exist"
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, remark)
        handle = RecallHandle.parse(fields["recallHandle"])
        group = fields.get("producerGroup", "")
        message = handle.message(topic, broker.settings, group, connection.peer)
        put = broker.appender.append_made(message)
        if isinstance(put, PutResult):
            return self._recalled(request, handle.message_id)
        return self._recalled_later(request, put, handle.message_id)

    def _recalled(self, request: RemotingCommand, message_id: str) -> RemotingCommand:
        # Java's clients send a trace of a recall only if the response has the region.
        return request.response(msgId=message_id, MSG_REGION=self._broker.settings.region)

    async def _recalled_later(
        self, request: RemotingCommand, put: Awaitable[PutResult], message_id: str
    ) -> Answer:
        await put
        return self._recalled(request, message_id)
