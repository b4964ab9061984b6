"""The rights that requests need: one table for both protocols, by what each request names.

A row is a request, by its name in ``RequestCode`` or in the gRPC service. It has the paths of all
names in the request: topics, groups, clients, messages, transactions. A request without a row needs
an administrator. All names are checked before a handler stores or sends anything.

Handles of hand-outs and recalls need no row: a handler accepts one only with the group and topic
that the request names beside it. Sources: RocketMQ 5.3.3, ``DefaultAuthorizationContextBuilder``;
4.9, ``PlainAccessValidator``. Here more requests need an administrator; the ends of transactions
and returned messages need the right to the topic of the stored message; and a client id belongs to
its user while it is connected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from lakelog_broker.codes import Forbidden, Invalid
from lakelog_broker.security import AccessRight, Use, User
from lakelog_broker.state import AUTO_CREATE_TOPIC

if TYPE_CHECKING:
    from lakelog_broker.broker import Broker

_PUB, _SUB = AccessRight.PUB, AccessRight.SUB
_ROUTE: Final = _PUB | _SUB
"""Either right; clients that send to new topics ask for the route of ``AUTO_CREATE_TOPIC``."""

Parts: TypeAlias = Mapping[str, Callable[[], Any]]
"""The parts of a request that paths begin with: ``fields`` and ``body``, ``request`` and
``metadata``."""


class NameKind(Enum):
    """What a request names."""

    TOPIC = "topic"
    GROUP = "group"
    PRODUCERS = "producer group"
    CLIENT = "client id"
    MESSAGE = "message"
    TRANSACTION = "transaction"


@attrs.frozen
class Named:
    """A name in a request.

    :ivar path: where it is; ``*`` stands for each element of a list
    :ivar right: the right that it needs; of several flags, any
    :ivar may_lack: whether a request may leave it out
    """

    kind: NameKind
    path: str
    right: AccessRight = _SUB
    may_lack: bool = False
    part: str = attrs.field(init=False, eq=False, repr=False)
    steps: tuple[str, ...] = attrs.field(init=False, eq=False, repr=False)

    @part.default
    def _part(self) -> str:
        return self.path.partition(".")[0]

    @steps.default
    def _steps(self) -> tuple[str, ...]:
        return tuple(self.path.split(".")[1:])

    def values_in(self, parts: Parts) -> Iterable[Any]:
        """The values in a request; ``None`` for one that is missing."""
        content = parts[self.part]()
        if self.part == "fields" and self.steps:  # in less than half the time
            return (content.get(self.steps[0]),)
        return values_at(content, self.steps)


def _topic(path: str, right: AccessRight = _SUB, *, may_lack: bool = False) -> Named:
    return Named(NameKind.TOPIC, path, right, may_lack)


def _group(path: str, *, may_lack: bool = False) -> Named:
    return Named(NameKind.GROUP, path, may_lack=may_lack)


def _producers(path: str) -> Named:
    return Named(NameKind.PRODUCERS, path, _PUB, may_lack=True)


def _client(path: str, *, may_lack: bool = False) -> Named:
    return Named(NameKind.CLIENT, path, may_lack=may_lack)


_READS: Final = _topic("fields.topic")
_CONSUMES: Final = (_READS, _group("fields.consumerGroup"))
_LOCKS: Final = (
    _client("body.clientId"),
    _group("body.consumerGroup"),
    _topic("body.mqSet.*.topic"),
)
_CALLER: Final = _client("metadata.x-mq-client-id", may_lack=True)
_POPS: Final = (_CALLER, _group("request.group"), _topic("request.topic"))

NAMES: Final[Mapping[str, tuple[Named, ...]]] = {
    # --- remoting: producers ---
    **dict.fromkeys(
        ("SEND_MESSAGE", "SEND_REPLY_MESSAGE", "RECALL_MESSAGE"), (_topic("fields.topic", _PUB),)
    ),
    **dict.fromkeys(
        ("SEND_MESSAGE_V2", "SEND_BATCH_MESSAGE", "SEND_REPLY_MESSAGE_V2"),
        (_topic("fields.b", _PUB),),
    ),
    "END_TRANSACTION": (
        _topic("fields.topic", _PUB, may_lack=True),  # clients before 5.3 do not send it
        Named(NameKind.TRANSACTION, "fields", _PUB),
    ),
    # --- remoting: consumers ---
    **dict.fromkeys(
        (
            *("PULL_MESSAGE", "LITE_PULL_MESSAGE", "QUERY_CONSUMER_OFFSET"),
            *("UPDATE_CONSUMER_OFFSET", "POP_MESSAGE", "ACK_MESSAGE", "PEEK_MESSAGE"),
            *("CHANGE_MESSAGE_INVISIBLETIME", "NOTIFICATION"),
        ),
        _CONSUMES,
    ),
    **dict.fromkeys(
        (
            *("QUERY_MESSAGE", "SEARCH_OFFSET_BY_TIMESTAMP", "GET_MAX_OFFSET", "GET_MIN_OFFSET"),
            "GET_EARLIEST_MSG_STORETIME",
        ),
        (_READS,),
    ),
    **dict.fromkeys(("LOCK_BATCH_MQ", "UNLOCK_BATCH_MQ"), _LOCKS),
    "BATCH_ACK_MESSAGE": (_group("body.acks.*.c"), _topic("body.acks.*.t")),
    "CONSUMER_SEND_MSG_BACK": (
        _group("fields.group"),
        _topic("fields.originTopic", may_lack=True),
        Named(NameKind.MESSAGE, "fields.offset"),  # a client may send none, or a wrong topic
    ),
    "GET_CONSUMER_LIST_BY_GROUP": (_group("fields.consumerGroup"),),
    "QUERY_ASSIGNMENT": (
        _client("body.clientId", may_lack=True),
        _group("body.consumerGroup"),
        _topic("body.topic"),
    ),
    "CHECK_CLIENT_CONFIG": (
        _client("body.clientId", may_lack=True),
        _group("body.group", may_lack=True),
        _topic("body.subscriptionData.topic", may_lack=True),
    ),
    # --- remoting: both ---
    "HEART_BEAT": (
        _client("body.clientID"),
        _group("body.consumerDataSet.*.groupName"),
        _topic("body.consumerDataSet.*.subscriptionDataSet.*.topic"),
        _producers("body.producerDataSet.*.groupName"),
    ),
    "UNREGISTER_CLIENT": (
        _client("fields.clientID"),
        _group("fields.consumerGroup", may_lack=True),
        _producers("fields.producerGroup"),
    ),
    "GET_ROUTEINFO_BY_TOPIC": (_topic("fields.topic", _ROUTE),),
    "GET_BROKER_CLUSTER_INFO": (),
    # --- gRPC ---
    "QueryRoute": (_CALLER, _topic("request.topic", _ROUTE)),
    "SendMessage": (_CALLER, _topic("request.messages.*.topic", _PUB)),
    "RecallMessage": (_CALLER, _topic("request.topic", _PUB)),
    "EndTransaction": (
        _CALLER,
        _topic("request.topic", _PUB),
        Named(NameKind.TRANSACTION, "request.transaction_id", _PUB),
    ),
    **dict.fromkeys(
        (
            *("QueryAssignment", "AckMessage", "ChangeInvisibleDuration"),
            *("ForwardMessageToDeadLetterQueue", "SyncLiteSubscription"),
        ),
        _POPS,
    ),
    "ReceiveMessage": (_CALLER, _group("request.group"), _topic("request.message_queue.topic")),
    **dict.fromkeys(
        ("Heartbeat", "NotifyClientTermination"),
        (_CALLER, _group("request.group", may_lack=True)),
    ),
    "Telemetry": (
        _CALLER,
        _topic("request.settings.publishing.topics.*", _PUB),
        _group("request.settings.subscription.group", may_lack=True),
        _topic("request.settings.subscription.subscriptions.*.topic"),
    ),
}


def check(
    broker: Broker, user: User, request: str, parts: Parts, name_of: Callable[[Any], object]
) -> None:
    """Check that a user has the rights to all that a request names.

    :param request: the name of the row
    :param name_of: returns the name in a value of the request

    Raises :class:`Refused`.
    """
    if user.admin:
        return
    row = NAMES.get(request)
    if row is None:
        raise Forbidden(f"{user.access_key} is no administrator, as request {request} needs")
    try:
        for named in row:
            for value in named.values_in(parts):
                name = name_of(value)
                if name is not None and name != "":
                    _check_name(broker, user, named, name)
                elif not named.may_lack:
                    raise Invalid(f"the request has no {named.kind.value} ({named.path})")
    except (TypeError, AttributeError) as error:
        raise Invalid(f"the body has values of other types: {error}") from None


def values_at(content: Any, path: Sequence[str]) -> Iterator[Any]:
    """The values at a path; ``None`` for one that is missing.

    >>> list(values_at({"a": [{"b": 1}, {}]}, ["a", "*", "b"]))
    [1, None]
    """
    if not path:
        yield content
        return
    step, *rest = path
    if step == "*":
        for each in content or ():
            yield from values_at(each, rest)
    elif content is None or isinstance(content, Mapping):
        yield from values_at((content or {}).get(step), rest)
    else:
        yield from values_at(getattr(content, step), rest)


def _check_name(broker: Broker, user: User, named: Named, value: Any) -> None:
    """Check that a user has the right to a value; raises :class:`Refused`."""
    kind, right = named.kind, named.right
    if kind is NameKind.TRANSACTION:
        topic = broker.transactions.topic_of(*_half(value))
        if topic is not None:
            Use(right, topic).require_of(user)
    elif not isinstance(value, str):
        raise Invalid(f"the {kind.value} {value!r:.100} is no text ({named.path})")
    elif kind is NameKind.CLIENT:
        broker.members.check_client(value, user)
    elif right != _ROUTE or value != AUTO_CREATE_TOPIC:
        _USES[kind](broker, right, value).require_of(user)


_USES: Final[Mapping[NameKind, Callable[[Broker, AccessRight, str], Use]]] = {
    NameKind.TOPIC: lambda _broker, right, name: Use(right, name),
    NameKind.GROUP: lambda _broker, right, name: Use(right, "", name),
    NameKind.PRODUCERS: lambda _broker, right, name: Use(right, producers=name),
    NameKind.MESSAGE: lambda broker, right, offset: Use(
        right, broker.store.look_up(int(offset)).topic
    ),
}


def _half(value: Any) -> tuple[int, int]:
    """The physical offset and the queue offset of a half message; -1 for an id that is none."""
    if isinstance(value, Mapping):
        return int(value["commitLogOffset"]), int(value["tranStateTableOffset"])
    try:
        place, half = (int(each, 16) for each in value.split("."))
    except ValueError:
        return -1, -1
    return place, half
