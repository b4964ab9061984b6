"""Authenticates the user of a call, and authorizes the topics and groups that the call uses.

Source: RocketMQ 5.3.3, ``DefaultAuthorizationContextBuilder``. In addition, the end of a
transaction needs the right to the topic of its half message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from lakelog_broker.broker import Broker
from lakelog_broker.codes import Refused
from lakelog_broker.grpc.mapping import name_of
from lakelog_broker.grpc.statuses import IllegalRequest
from lakelog_broker.security.access import AccessControl
from lakelog_broker.security.requests import Use
from lakelog_broker.security.users import AccessRight

_PUB, _SUB = AccessRight.PUB, AccessRight.SUB
_Uses: TypeAlias = Callable[[Any], Iterator[Use]]


def place_of(transaction_id: str) -> tuple[int, int]:
    """Parse a transaction id: physical offset and queue offset of the half message.

    Raises :class:`IllegalRequest`.
    """
    try:
        place, half = (int(each, 16) for each in transaction_id.split("."))
    except ValueError:
        text = f"{transaction_id[:100]!r} is no id of a transaction"
        raise IllegalRequest("INVALID_TRANSACTION_ID", text) from None
    return place, half


def _consumes(request: Any) -> Iterator[Use]:
    yield Use(_SUB, group=name_of(request.group))
    yield Use(_SUB, topic=name_of(request.topic))


def _receives(request: Any) -> Iterator[Use]:
    yield Use(_SUB, group=name_of(request.group))
    yield Use(_SUB, topic=name_of(request.message_queue.topic))


def _sends(request: Any) -> Iterator[Use]:
    for each in request.messages:
        yield Use(_PUB, topic=name_of(each.topic))


def _writes(request: Any) -> Iterator[Use]:
    yield Use(_PUB, topic=name_of(request.topic))


def _of_group(request: Any) -> Iterator[Use]:
    yield Use(_SUB, group=name_of(request.group))


def _settings(command: Any) -> Iterator[Use]:
    for each in command.settings.publishing.topics:
        yield Use(_PUB, topic=name_of(each))
    subscription = command.settings.subscription
    yield Use(_SUB, group=name_of(subscription.group))
    for each in subscription.subscriptions:
        yield Use(_SUB, topic=name_of(each.topic))


def _nothing(_request: Any) -> Iterator[Use]:
    return iter(())


_USES: Final[Mapping[str, _Uses]] = {
    "QueryRoute": _nothing,
    "QueryAssignment": _consumes,
    "Heartbeat": _of_group,
    "NotifyClientTermination": _of_group,
    "SendMessage": _sends,
    "EndTransaction": _writes,
    "RecallMessage": _writes,
    "ReceiveMessage": _receives,
    "AckMessage": _consumes,
    "ChangeInvisibleDuration": _consumes,
    "ForwardMessageToDeadLetterQueue": _consumes,
    "Telemetry": _settings,
}


class GrpcAccess:
    """Checks every call.

    Raises :class:`~lakelog.errors.SettingsError` as :meth:`AccessControl.of`.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker, self._control = broker, AccessControl.of(broker.settings)

    def check(self, name: str, request: Any, context: Any) -> None:
        """Check the signature of a call and the rights of its user.

        :param name: the method's name; a method that is not listed needs an administrator
        :param request: the request message
        :param context: the call's ``ServicerContext``

        Raises :class:`IllegalRequest` with ``UNAUTHORIZED`` or ``FORBIDDEN``.
        """
        metadata = {key: str(value) for key, value in context.invocation_metadata()}
        try:
            user = self._control.check_grpc(metadata)
        except Refused as error:
            raise IllegalRequest("UNAUTHORIZED", error.remark) from None
        if user.admin:
            return
        if name not in _USES:
            text = f"{user.access_key} is no administrator, as {name} needs"
            raise IllegalRequest("FORBIDDEN", text)
        uses = list(_USES[name](request))
        if name == "EndTransaction":
            place = place_of(request.transaction_id)
            uses.append(Use(_PUB, topic=self._broker.transactions.topic_of(*place) or ""))
        try:
            for use in uses:
                self._control.require(user, use.operation, topic=use.topic, group=use.group)
        except Refused as error:
            raise IllegalRequest("FORBIDDEN", error.remark) from None
