"""gRPC clients: their users, settings, telemetry streams, and membership in groups."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from lakelog import StoredMessage
from lakelog_broker import codes, rights, state
from lakelog_broker.broker import Broker
from lakelog_broker.grpc import mapping
from lakelog_broker.grpc.lite import LiteSubscriptions
from lakelog_broker.properties import MAX_LITE_NAME
from lakelog_broker.security import ANONYMOUS, AccessControl, User
from lakelog_queues.delays.delivering import one_of_many
from lakelog_queues.groups.set_aside import RETRY_PREFIX
from lakelog_queues.units.tags import DELAYS_MS

_LOG: Final = logging.getLogger("lakelog.broker")
MAX_BODY_BYTES: Final = 4 << 20
MAX_TOPICS: Final = 1_000
"""Most topics to which one client sends or subscribes."""
_BATCH: Final = 32
_POLLING_S: Final = 20
_PRODUCER_ATTEMPTS: Final = 3
_PUSH_CONSUMERS: Final = (2, 5)  # ClientType
_LITE_CONSUMERS: Final = (5, 6)
_FILTER_NAMES: Final = {2: "SQL92"}


class TelemetryStream(state.Peer):
    """The telemetry stream of one client.

    :ivar user: whose client it is
    :ivar settings: the client's last ``Settings``
    :ivar is_ordered: whether its group consumes the messages of a queue in order
    :ivar commands: the ``TelemetryCommand`` messages to send; ``None`` ends the stream
    """

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.user = ANONYMOUS
        self.settings: Any = None
        self.is_ordered = False
        self.commands: asyncio.Queue[Any] = asyncio.Queue()

    @property
    def is_lite(self) -> bool:
        """Whether the client consumes Lite topics."""
        return self.settings.client_type in _LITE_CONSUMERS

    def check_transaction(self, half: StoredMessage) -> None:
        """Ask the client for the outcome of a transaction."""
        command = mapping.proto("TelemetryCommand")()
        asked = command.recover_orphaned_transaction_command
        asked.transaction_id = mapping.transaction_id(half.physical_offset, half.queue_offset)
        topic = half.properties.get("REAL_TOPIC", half.topic)
        asked.message.CopyFrom(mapping.sent_form(half, topic))
        self.commands.put_nowait(command)


def client_id_of(context: Any) -> str:
    """The id of the calling client; raises :class:`IllegalRequest` without one."""
    found = dict(context.invocation_metadata()).get("x-mq-client-id")
    if not found:
        raise mapping.IllegalRequest("CLIENT_ID_REQUIRED", "the metadata has no x-mq-client-id")
    return str(found)


class GrpcClients:
    """The clients that have a telemetry stream, and the rights of all.

    :ivar streams: the streams, by client id
    :ivar lite: the Lite topics to which they subscribe
    :ivar on_gone: called with the id of a client that left

    Raises :class:`~lakelog.errors.SettingsError` as :meth:`AccessControl.of`.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker, self._control = broker, AccessControl.of(broker.settings)
        self.streams: dict[str, TelemetryStream] = {}
        self.lite = LiteSubscriptions(broker, self._unsubscribe)
        self.on_gone: Callable[[str], None] = lambda _client_id: None

    def user_of(self, context: Any) -> User:
        """Check the signature of a call, and return its user.

        :param context: the call's ``ServicerContext``

        Raises :class:`IllegalRequest` with ``UNAUTHORIZED``.
        """
        try:
            return self._control.grpc_user(_metadata(context))
        except codes.Refused as error:
            raise mapping.IllegalRequest("UNAUTHORIZED", error.remark) from None

    def check(self, name: str, request: Any, context: Any, user: User) -> None:
        """Check that a user has the rights that a call needs; raises :class:`Refused`.

        :param name: the method's name
        :param request: the request message
        """
        parts = {"request": lambda: request, "metadata": lambda: _metadata(context)}
        rights.check(self._broker, user, name, parts, mapping.name_in)

    async def telemetry(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        """Serve a client's stream: answer its settings with completed ones, and send commands.

        Raises :class:`IllegalRequest`.
        """
        line = TelemetryStream(client_id_of(context))
        listening = asyncio.create_task(self._listen(line, requests, context))
        try:
            while (command := await line.commands.get()) is not None:
                yield command
        finally:
            listening.cancel()
            if self.streams.get(line.client_id) is line:
                self._remove(line.client_id)
            if line.settings is not None:
                self._broker.members.release(line.client_id)

    async def _listen(self, line: TelemetryStream, requests: Any, context: Any) -> None:
        try:
            async for command in requests:
                try:
                    if line.settings is None:  # the time of a signature is that of the first
                        line.user = self.user_of(context)
                    self.check("Telemetry", command, context, line.user)
                    check_counts(command.settings)
                    if command.HasField("settings"):
                        self._note_settings(line, command.settings)
                except (mapping.IllegalRequest, codes.Refused) as error:
                    if isinstance(error, codes.LimitExceeded):
                        text = "the gRPC client %.100s is refused: %s"
                        _LOG.warning(text, line.client_id, error)
                    refused = mapping.proto("TelemetryCommand")(status=mapping.status_of(error))
                    line.commands.put_nowait(refused)
                    return
                if command.HasField("settings"):
                    settings = self.completed(command.settings)
                    line.is_ordered = settings.subscription.fifo
                    answer = mapping.proto("TelemetryCommand")(
                        status=mapping.status(), settings=settings
                    )
                    line.commands.put_nowait(answer)
        finally:
            line.commands.put_nowait(None)

    def _note_settings(self, line: TelemetryStream, settings: Any) -> None:
        """Raise :class:`IllegalRequest` for a name that RocketMQ refuses."""
        topics, group = self._broker.topics, mapping.name_of(settings.subscription.group)
        for name in map(mapping.name_of, _topics_of(settings)):
            if topics.find(name) is None:
                with _illegal("ILLEGAL_TOPIC"):
                    state.check_topic(name)
        if group:
            with _illegal("ILLEGAL_CONSUMER_GROUP"):
                topics.add_group(group)
        if line.settings is None:
            self._broker.members.claim(line.client_id, line.user)
        line.settings = settings
        self.streams[line.client_id] = line
        self._join(line)

    async def heartbeat(self, _request: Any, context: Any) -> Any:
        """Serve ``Heartbeat``: renew a client in its groups."""
        line = self.streams.get(client_id_of(context))
        if line is not None:
            self._join(line)
        return mapping.proto("HeartbeatResponse")(status=mapping.status())

    async def terminated(self, _request: Any, context: Any) -> Any:
        """Serve ``NotifyClientTermination``: remove a client that announced its end."""
        self._remove(client_id_of(context))
        return mapping.proto("NotifyClientTerminationResponse")(status=mapping.status())

    async def sync_lite(self, request: Any, context: Any) -> Any:
        """Serve ``SyncLiteSubscription``: change the Lite topics to which a client subscribes.

        Raises :class:`IllegalRequest`, and :class:`Refused` for an unknown topic.
        """
        client_id = client_id_of(context)
        if client_id not in self.streams:
            raise mapping.IllegalRequest(
                "UNRECOGNIZED_CLIENT_TYPE", f"the client {client_id} has sent no settings"
            )
        self.lite.change(
            client_id,
            mapping.name_of(request.group),
            mapping.name_of(request.topic),
            request.action,
            request.lite_topic_set,
            request.offset_option if request.HasField("offset_option") else None,
        )
        return mapping.proto("SyncLiteSubscriptionResponse")(status=mapping.status())

    def _unsubscribe(self, client_id: str, name: str) -> None:
        """Tell a client that another one has taken over a Lite topic."""
        line = self.streams.get(client_id)
        if line is not None:
            command = mapping.proto("TelemetryCommand")()
            command.notify_unsubscribe_lite_command.lite_topic = name
            line.commands.put_nowait(command)

    def _join(self, line: TelemetryStream) -> None:
        settings, members = line.settings, self._broker.members
        language = str(settings.user_agent.language)
        member = state.Member(line.client_id, line, time.monotonic(), language, user=line.user)
        for each in settings.publishing.topics:
            members.join_producers(mapping.name_of(each), member)
        name = mapping.name_of(settings.subscription.group)
        if not name:
            return
        with one_of_many(f"the creation of the retry topic of group {name!r}"):
            self._broker.topics.of_group(RETRY_PREFIX, name)
        group = members.join(name, member)
        _subscribe(group, settings.subscription.subscriptions)

    def _remove(self, client_id: str) -> None:
        line = self.streams.pop(client_id, None)
        if line is not None:
            self._broker.members.disconnected(line)
            line.commands.put_nowait(None)
        self.lite.remove(client_id)
        self.on_gone(client_id)

    def completed(self, sent: Any) -> Any:
        """The client's ``Settings`` with the values that the broker sets."""
        settings = mapping.proto("Settings")()
        settings.CopyFrom(sent)
        backoff = settings.backoff_policy
        if settings.HasField("publishing"):
            settings.publishing.max_body_size = MAX_BODY_BYTES
            settings.publishing.validate_message_type = True
            backoff.max_attempts = _PRODUCER_ATTEMPTS
            exponential = backoff.exponential_backoff
            exponential.initial.FromMilliseconds(10)
            exponential.max.FromMilliseconds(1000)
            exponential.multiplier = 2
        elif settings.HasField("subscription"):
            subscription = settings.subscription
            group = mapping.name_of(subscription.group)
            subscription.fifo = subscription.fifo or self._broker.topics.is_ordered(group)
            subscription.receive_batch_size = _BATCH
            subscription.long_polling_timeout.seconds = _POLLING_S
            if settings.client_type in _LITE_CONSUMERS:
                subscription.lite_subscription_quota = self.lite.quota(group)
                subscription.max_lite_topic_size = MAX_LITE_NAME
            if settings.client_type in _PUSH_CONSUMERS:
                backoff.max_attempts = self._broker.topics.retry_limit(group) + 1
                backoff.customized_backoff.ClearField("next")
                for delay_ms in DELAYS_MS:
                    backoff.customized_backoff.next.add().FromMilliseconds(delay_ms)
        settings.metric.on = False
        return settings


def _metadata(context: Any) -> dict[str, str]:
    return {key: str(value) for key, value in context.invocation_metadata()}


@contextmanager
def _illegal(code: str) -> Iterator[None]:
    """Answer a refused name with this code."""
    try:
        yield
    except codes.Invalid as error:
        raise mapping.IllegalRequest(code, error.remark) from None


def _topics_of(settings: Any) -> list[Any]:
    return [
        *settings.publishing.topics,
        *(each.topic for each in settings.subscription.subscriptions),
    ]


def check_counts(settings: Any) -> None:
    """Raise :class:`LimitExceeded` for the settings of a client with too many topics."""
    codes.check_limit(len(_topics_of(settings)), MAX_TOPICS, "a client with {} topics")


def _subscribe(group: state.MemberGroup, subscriptions: Any) -> None:
    for each in subscriptions:
        topic, expression = mapping.name_of(each.topic), each.expression
        group.subscriptions[topic] = {
            "topic": topic,
            "subString": expression.expression or "*",
            "expressionType": _FILTER_NAMES.get(expression.type, "TAG"),
        }
