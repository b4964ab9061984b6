"""gRPC clients: their rights, settings, telemetry streams, and membership in groups.

Source of the rights: RocketMQ 5.3.3, ``DefaultAuthorizationContextBuilder``. In addition, the end
of a transaction needs the right to the topic of its half message.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from operator import attrgetter
from typing import Any, Final, TypeAlias

from lakelog import StoredMessage
from lakelog_broker import codes, state
from lakelog_broker.broker import Broker
from lakelog_broker.grpc import mapping
from lakelog_broker.grpc.lite import LiteSubscriptions
from lakelog_broker.properties import MAX_LITE_NAME
from lakelog_broker.security import AccessControl, AccessRight, Use
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
_PUB, _SUB = AccessRight.PUB, AccessRight.SUB
_Uses: TypeAlias = Callable[[Any], Iterator[Use]]


def _reads(*paths: str) -> _Uses:
    """Uses of a call that reads the topics and groups in the fields ``paths``."""

    def uses(request: Any) -> Iterator[Use]:
        for path in paths:
            name = mapping.name_of(attrgetter(path)(request))
            yield Use(_SUB, topic=name) if path.endswith("topic") else Use(_SUB, group=name)

    return uses


_consumes: Final = _reads("group", "topic")


def _sends(request: Any) -> Iterator[Use]:
    for each in request.messages:
        yield Use(_PUB, topic=mapping.name_of(each.topic))


def _writes(request: Any) -> Iterator[Use]:
    yield Use(_PUB, topic=mapping.name_of(request.topic))


def _settings(command: Any) -> Iterator[Use]:
    for each in command.settings.publishing.topics:
        yield Use(_PUB, topic=mapping.name_of(each))
    subscription = command.settings.subscription
    yield Use(_SUB, group=mapping.name_of(subscription.group))
    for each in subscription.subscriptions:
        yield Use(_SUB, topic=mapping.name_of(each.topic))


def _nothing(_request: Any) -> Iterator[Use]:
    return iter(())


_USES: Final[Mapping[str, _Uses]] = {
    "QueryRoute": _nothing,
    "QueryAssignment": _consumes,
    "Heartbeat": _reads("group"),
    "NotifyClientTermination": _reads("group"),
    "SendMessage": _sends,
    "EndTransaction": _writes,
    "RecallMessage": _writes,
    "ReceiveMessage": _reads("group", "message_queue.topic"),
    "AckMessage": _consumes,
    "ChangeInvisibleDuration": _consumes,
    "ForwardMessageToDeadLetterQueue": _consumes,
    "SyncLiteSubscription": _consumes,
    "Telemetry": _settings,
}


class TelemetryStream(state.Peer):
    """The telemetry stream of one client.

    :ivar settings: the client's last ``Settings``
    :ivar is_ordered: whether its group consumes the messages of a queue in order
    :ivar commands: the ``TelemetryCommand`` messages to send; ``None`` ends the stream
    """

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
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

    def check(self, name: str, request: Any, context: Any) -> None:
        """Check the signature of a call and the rights of its user.

        :param name: the method's name; a method that is not listed needs an administrator
        :param request: the request message
        :param context: the call's ``ServicerContext``

        Raises :class:`IllegalRequest` with ``UNAUTHORIZED``, and :class:`Refused`.
        """
        metadata = {key: str(value) for key, value in context.invocation_metadata()}
        try:
            user = self._control.grpc_user(metadata)
        except codes.Refused as error:
            raise mapping.IllegalRequest("UNAUTHORIZED", error.remark) from None
        if user.admin:
            return
        if name not in _USES:
            raise codes.Forbidden(f"{user.access_key} is no administrator, as {name} needs")
        for use in _USES[name](request):
            use.require_of(user)
        if name == "EndTransaction":
            place = mapping.place_of(request.transaction_id)
            Use(_PUB, topic=self._broker.transactions.topic_of(*place) or "").require_of(user)

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

    async def _listen(self, line: TelemetryStream, requests: Any, context: Any) -> None:
        try:
            async for command in requests:
                try:
                    self.check("Telemetry", command, context)
                    check_counts(command.settings)
                except (mapping.IllegalRequest, codes.Refused) as error:
                    if isinstance(error, codes.LimitExceeded):
                        text = "the gRPC client %.100s is refused: %s"
                        _LOG.warning(text, line.client_id, error)
                    refused = mapping.proto("TelemetryCommand")(status=mapping.status_of(error))
                    line.commands.put_nowait(refused)
                    return
                if command.HasField("settings"):
                    line.settings = command.settings
                    self.streams[line.client_id] = line
                    self._join(line)
                    settings = self.completed(command.settings)
                    line.is_ordered = settings.subscription.fifo
                    answer = mapping.proto("TelemetryCommand")(
                        status=mapping.status(), settings=settings
                    )
                    line.commands.put_nowait(answer)
        finally:
            line.commands.put_nowait(None)

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
        member = state.Member(line.client_id, line, time.monotonic(), language)
        for each in settings.publishing.topics:
            members.join_producers(mapping.name_of(each), member)
        if not settings.subscription.group.name:
            return
        name = mapping.name_of(settings.subscription.group)
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


def check_counts(settings: Any) -> None:
    """Raise :class:`LimitExceeded` for the settings of a client with too many topics."""
    count = len(settings.publishing.topics) + len(settings.subscription.subscriptions)
    codes.check_limit(count, MAX_TOPICS, "a client with {} topics")


def _subscribe(group: state.MemberGroup, subscriptions: Any) -> None:
    for each in subscriptions:
        topic, expression = mapping.name_of(each.topic), each.expression
        group.subscriptions[topic] = {
            "topic": topic,
            "subString": expression.expression or "*",
            "expressionType": _FILTER_NAMES.get(expression.type, "TAG"),
        }
