"""Calls that put messages, and end transactions."""

from __future__ import annotations

import itertools
from typing import Any, Final

from lakelog import PutResult
from lakelog_broker.appending import refuse_system_topic
from lakelog_broker.broker import Broker
from lakelog_broker.grpc.access import place_of
from lakelog_broker.grpc.clients import MAX_BODY_BYTES, transaction_id
from lakelog_broker.grpc.mapping import NORMAL, TRANSACTION, name_of, stored_form
from lakelog_broker.grpc.protos import proto
from lakelog_broker.grpc.routing import Routing, accepted_types
from lakelog_broker.grpc.statuses import (
    IllegalRequest,
    common_status,
    put_status,
    status,
    status_of,
)
from lakelog_broker.scheduled.recall import RecallHandle
from lakelog_broker.state.topics import WRITABLE

_OUTCOMES: Final = {1: True, 2: False}


class Producing:
    """Puts messages of producers."""

    def __init__(self, broker: Broker, routing: Routing) -> None:
        self._broker, self._routing = broker, routing
        self._turn = itertools.count()

    async def send(self, request: Any, _context: Any) -> Any:
        """Serve ``SendMessage``: put each message; the answer has one entry for each."""
        answer = proto("SendMessageResponse")()
        for each in request.messages:
            try:
                entry = await self._put(each)
            except Exception as error:  # noqa: BLE001  # the other messages are put
                entry = proto("SendResultEntry")(status=status_of(error))
            answer.entries.append(entry)
        answer.status.CopyFrom(common_status(each.status for each in answer.entries))
        return answer

    async def _put(self, sent: Any) -> Any:
        name, kind = name_of(sent.topic), sent.system_properties.message_type or NORMAL
        refuse_system_topic(name)
        topic = self._routing.topic(name)
        if not topic.permission & WRITABLE:
            raise IllegalRequest("FORBIDDEN", f"the topic {name} may not be written")
        if kind not in accepted_types(topic):
            kinds = topic.attributes.get("message.type")
            text = f"the topic {name} takes messages of the type {kinds}"
            raise IllegalRequest("MESSAGE_PROPERTY_CONFLICT_WITH_TYPE", text)
        if len(sent.body) > MAX_BODY_BYTES:
            text = f"a body of {len(sent.body)} bytes; at most {MAX_BODY_BYTES} are taken"
            raise IllegalRequest("MESSAGE_BODY_TOO_LARGE", text)
        queue_count = topic.write_queues
        message = stored_form(sent, queue_count, next(self._turn) % queue_count)
        put = self._broker.appender.append(message)
        done = put if isinstance(put, PutResult) else await put
        entry = proto("SendResultEntry")(
            status=put_status(done.status),
            message_id=sent.system_properties.message_id,
            offset=done.queue_offset,
        )
        handle = RecallHandle.of(message.properties, self._broker.settings.name)
        if handle is not None and kind != TRANSACTION:
            entry.recall_handle = handle.encode()
        if kind == TRANSACTION:
            entry.transaction_id = transaction_id(done.physical_offset, done.queue_offset)
        return entry

    async def recall(self, request: Any, _context: Any) -> Any:
        """Serve ``RecallMessage``: recall a waiting timer message by its handle.

        Raises :class:`IllegalRequest` and :class:`~lakelog_broker.codes.Refused`.
        """
        topic, settings = name_of(request.topic), self._broker.settings
        if self._broker.topics.find(topic) is None:
            raise IllegalRequest("TOPIC_NOT_FOUND", f"there is no topic {topic}")
        handle = RecallHandle.parse(request.recall_handle)
        put = self._broker.appender.append_made(handle.message(topic, settings, topic, None))
        done = put if isinstance(put, PutResult) else await put
        found = put_status(done.status)
        return proto("RecallMessageResponse")(status=found, message_id=handle.message_id)

    async def end_transaction(self, request: Any, _context: Any) -> Any:
        """Serve ``EndTransaction``: commit or roll back the half message that the id names.

        Raises :class:`IllegalRequest`.
        """
        place, half = place_of(request.transaction_id)
        outcome = _OUTCOMES.get(request.resolution)
        if not self._broker.transactions.end(place, half, outcome):
            text = f"there is no transaction {request.transaction_id}"
            raise IllegalRequest("INVALID_TRANSACTION_ID", text)
        return proto("EndTransactionResponse")(status=status())
