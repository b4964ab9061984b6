"""Puts the messages of clients, and sets aside messages for later delivery.

A message that is set aside gets another topic, and has its own topic and queue as properties. A
message with a delay level goes to ``SCHEDULE_TOPIC_XXXX``, a message with a time of delivery to
``rmq_sys_wheel_timer``, and the half message of a transaction to ``RMQ_SYS_TRANS_HALF_TOPIC``.
Source: RocketMQ 5.3.3, ``HookUtils`` and ``TransactionalMessageBridge``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from lakelog import Message, NotDurable, PutResult, Store, StoredMessage, results
from lakelog.format.encoder import system_ms
from lakelog.format.layout import MAX_PROPERTIES_BYTES, TRANSACTION_MASK
from lakelog.format.properties import SCHEDULE_TOPIC, TIMER_TOPIC
from lakelog_broker.codes import Forbidden, Refused, ResponseCode
from lakelog_broker.properties import CommonProperties
from lakelog_queues.delays.delivering import copied, number, restored
from lakelog_queues.delays.timers import timer_due_ms
from lakelog_queues.units.properties import property_value, stored_properties, with_properties
from lakelog_queues.units.tags import DELAYS_MS

Results: TypeAlias = Sequence[PutResult] | Awaitable[Sequence[PutResult]]
Done = TypeVar("Done")
Answer = TypeVar("Answer")

HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
_REFUSED_TOPICS: Final = {
    HALF_TOPIC,
    SCHEDULE_TOPIC,
    "OFFSET_MOVED_EVENT",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "SELF_TEST_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
}
"""RocketMQ's ``TopicValidator.isNotAllowedSendTopic``."""
SYSTEM_TOPICS: Final = _REFUSED_TOPICS | {
    *("TBW102", "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC", "CHECKPOINT_TOPIC"),
    TIMER_TOPIC,
}
"""RocketMQ's ``TopicValidator.getSystemTopicSet``."""
_SYSTEM_PREFIX: Final = "rmq_sys_"
"""Prefix of the topics of timers and of pop checkpoints; RocketMQ accepts sends to them."""
_OF_A_TIME: Final = (
    *(b"CLUSTER", b"DELAY", b"TRAN_MSG"),
    *(b"TIMER_DELIVER_MS", b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS"),
)
"""Properties that the appender adds, or that make it set a message aside."""
ILLEGAL_PUTS: Final = {
    results.PutStatus.MESSAGE_ILLEGAL,
    results.PutStatus.MESSAGE_SIZE_EXCEEDED,
    results.PutStatus.PROPERTIES_SIZE_EXCEEDED,
}
"""Outcomes of puts that no later attempt changes."""
_MOST_WITH_A_TIME: Final = MAX_PROPERTIES_BYTES - len(b"TIMER_OUT_MS\x011234567890123\x02")
_ENDS: Final = (b"", b"\x02")
"""The last byte of a property string to which further properties can be appended directly."""


class BrokerAppender:
    """Appends messages with the properties that a broker adds.

    :ivar store_host: ``host:port`` of this broker, stored in each message
    :ivar puts_wait: whether a put waits for a sync or for copies, and so returns an awaitable
    :param timer_limit_ms: longest delay of a timer message
    """

    def __init__(self, store: Store, cluster: str, region: str, timer_limit_ms: int) -> None:
        self.store_host: str | None = None
        self._timer_limit_ms = timer_limit_ms
        self._store = store
        self._put: Callable[[Message], PutResult | Awaitable[PutResult]] = store.put
        self._put_batch: Callable[[Sequence[Message]], Results] = store.put_batch
        self._feeds_light_queues = store.settings.core.light_queues
        self.puts_wait = store.puts_wait
        if store.puts_wait:  # must not block the event loop; concurrent puts share a sync
            self._put, self._put_batch = store.put_async, store.put_batch_async
        # In the order in which RocketMQ's broker adds them.
        self._cluster = f"\x02CLUSTER\x01{cluster}\x02".encode()
        traced = f"\x02MSG_REGION\x01{region}\x02TRACE_ON\x01true".encode()
        self._of_clients = traced + self._cluster
        self._common = CommonProperties(self._of_clients)

    def append(self, message: Message) -> PutResult | Awaitable[PutResult]:
        """Append a client's message; its properties are an encoded property string in bytes.

        :returns: the result, or an awaitable if the put waits for a sync or for copies

        Raises :class:`Refused` for a time of delivery beyond the limit, and for a Lite topic of a
        store without light queues; :class:`~lakelog.PutRefused`, and
        :class:`~lakelog.errors.StoreFailed`.
        """
        given: Any = message.properties or b""
        if b"WAIT\x01false" in given:
            message.wait_store_ok = False
        if b"__LITE_TOPIC\x01" in given and not self._feeds_light_queues:
            raise Refused(
                "a lite topic needs light queues: set light_queues = true in all processes that "
                "have the store open",
                ResponseCode.ILLEGAL_OPERATION,
            )
        return self._append(message, self._of_clients)

    def put_common(self, message: Message, properties: bytes) -> PutResult | None:
        """Append a message without waiting, if its properties are common.

        :param properties: the client's property string
        :returns: ``None`` if nothing was appended; the caller must use :meth:`append` then

        Raises as :meth:`append`.
        """
        stored = self._common.stored(properties)
        if stored is None or self.puts_wait:
            return None
        message.properties = stored
        message.store_host = self.store_host
        if b"WAIT\x01false" in stored:
            message.wait_store_ok = False
        return self._store.put(message)

    def append_made(self, message: Message) -> PutResult | Awaitable[PutResult]:
        """Append a message that the broker itself made, such as a retry; as :meth:`append`."""
        return self._append(message, self._cluster)

    def _append(self, message: Message, added: bytes) -> PutResult | Awaitable[PutResult]:
        given: Any = message.properties or b""
        message.properties = properties = stored_properties(given + added)
        message.store_host = self.store_host
        if b"DELAY\x01" in properties or b"TIMER_D" in properties or b"TRAN_MSG\x01" in properties:
            self._set_aside(message, properties)
        return self._put(message)

    def append_batch(self, messages: Sequence[Message], properties: bytes = b"") -> Results:
        """Append messages without a time of delivery, all or none.

        :param properties: property string of the batch, added to the properties of each message

        Raises :class:`~lakelog.PutRefused` and :class:`~lakelog.errors.StoreFailed`.
        """
        shared = stored_properties(properties + self._of_clients)
        for message in messages:
            own: Any = message.properties
            message.properties = own + shared if own[-1:] in _ENDS else own + b"\x02" + shared
            message.store_host = self.store_host
        return self._put_batch(messages)

    def append_moved(self, message: Message) -> PutResult | Awaitable[PutResult]:
        """Append a copy of a stored message at once; raises as :meth:`append`."""
        message.properties = with_properties(message.properties, _OF_A_TIME)  # type: ignore[arg-type]  # stored ones are bytes
        return self.append_made(message)

    def put_real(
        self,
        stored: StoredMessage,
        without: tuple[bytes, ...] = (),
        *,
        sets_aside: bool = False,
        **fields: Any,
    ) -> PutResult:
        """Put a message that was set aside into its own topic and queue.

        The message is in the log on return, but maybe not durable. After a crash it is delivered
        again, as the progress of delivery is saved only behind a durable log.

        :param without: further properties to remove
        :param sets_aside: whether to honour a time of delivery among the properties
        :param fields: fields of :class:`~lakelog.Message` to replace

        Raises ``ValueError`` if the message has no own topic, and as :meth:`append`.
        """
        message = restored(stored, without)
        if sets_aside:
            self._set_aside(message, message.properties)  # type: ignore[arg-type]  # stored ones are bytes
        for name, value in fields.items():
            setattr(message, name, value)
        message.store_host, message.wait_store_ok = self.store_host, False
        return self._store.put(message)

    def put_again(self, stored: StoredMessage, **added: str) -> PutResult:
        """Append a message again to the queue in which it waits, with further properties.

        Raises :class:`~lakelog.PutRefused` and :class:`~lakelog.errors.StoreFailed`.
        """
        message = copied(stored)
        message.properties = with_properties(stored.properties_bytes, (), **added)
        message.store_host, message.wait_store_ok = self.store_host, False
        return self._store.put(message)

    def _set_aside(self, message: Message, properties: bytes) -> None:
        level = number(property_value(properties, b"DELAY"))
        is_timer = not level and b"TIMER_D" in properties
        due_ms = self._timer_due_ms(properties) if is_timer else None
        if property_value(properties, b"TRAN_MSG") == b"true":
            # A time of delivery takes effect at the commit. The transaction bits of sys_flag are
            # cleared: a record with the bits of a prepared message would get no queue offset.
            key = property_value(properties, b"UNIQ_KEY")
            if key is not None:
                message.properties = with_properties(properties, __transactionId__=key.decode())
            self._move(message, HALF_TOPIC, 0)
            if due_ms is not None and len(message.properties) > _MOST_WITH_A_TIME:  # type: ignore[arg-type]  # bytes by now
                raise Refused(
                    f"the properties have no room for the time of delivery, which a commit adds: "
                    f"{_MOST_WITH_A_TIME} bytes are the limit",
                    ResponseCode.MESSAGE_ILLEGAL,
                )
            message.sys_flag &= ~TRANSACTION_MASK
        elif level > 0:
            self._move(message, SCHEDULE_TOPIC, min(level, len(DELAYS_MS)) - 1)
        elif due_ms is not None:
            message.properties = with_properties(properties, TIMER_OUT_MS=str(due_ms))
            self._move(message, TIMER_TOPIC, 0)

    def _timer_due_ms(self, properties: bytes) -> int | None:
        """The time of delivery in ms since 1970; ``None`` means now.

        Raises :class:`Refused` for a time that RocketMQ refuses.
        """
        now_ms = system_ms()
        try:
            due_ms = timer_due_ms(properties, now_ms)
        except ValueError:
            due_ms = now_ms + self._timer_limit_ms + 1
        if due_ms is None:
            return None
        is_late = due_ms <= now_ms and property_value(properties, b"TIMER_DEL_UNIQKEY") is not None
        if is_late or due_ms > now_ms + self._timer_limit_ms:
            raise Refused(
                "timer message illegal, the delay time should not be bigger than the max delay "
                f"{self._timer_limit_ms}ms; or if set del msg, the delay time should be bigger "
                "than the current time",
                ResponseCode.MESSAGE_ILLEGAL,
            )
        return due_ms if due_ms > now_ms else None

    @staticmethod
    def _move(message: Message, topic: str, queue_id: int) -> None:
        message.properties = with_properties(
            message.properties,  # type: ignore[arg-type]  # stored ones are bytes
            REAL_TOPIC=message.topic,
            REAL_QID=str(message.queue_id or 0),
        )
        message.topic, message.queue_id = topic, queue_id


def when_put(
    put: Done | Awaitable[Done], answer: Callable[[Done], Answer]
) -> Answer | Awaitable[Answer]:
    """Call ``answer`` with the result of a put, now or once the put is done."""
    if not isinstance(put, Awaitable):
        return answer(put)

    async def later() -> Answer:
        return answer(await settled(put))

    return later()


async def settled(put: Done | Awaitable[Done]) -> Done:
    """The result of a put, once it is done; of a late one too, whose status the client gets."""
    try:
        return await put if isinstance(put, Awaitable) else put
    except NotDurable as late:
        return late.result  # type: ignore[no-any-return]  # of the same type as that of the put


def is_system_topic(topic: str) -> bool:
    """Whether only the broker itself puts messages into a topic."""
    return topic in _REFUSED_TOPICS or topic.startswith(_SYSTEM_PREFIX)


def refuse_system_topic(topic: str) -> None:
    """Raise :class:`Refused` for a topic to which clients may not send."""
    if is_system_topic(topic):
        raise Forbidden(f"Sending message to topic[{topic}] is forbidden.")
