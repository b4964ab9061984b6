"""Checks the signature of a request and the permissions of its user, for both protocols.

Sources: RocketMQ 5.3.3, ``AclClientRPCHook``, ``AclUtils`` and
``DefaultAuthenticationContextBuilder``; rocketmq-clients, ``Signature``.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from lakelog_broker.codes import Refused, RequestCode, ResponseCode
from lakelog_broker.security.users import AccessRight, Request, Use, User, read_users, uses_of
from lakelog_broker.settings import BrokerSettings, refuse_exposed

if TYPE_CHECKING:
    from lakelog_broker.broker import Broker

MAX_CLOCK_SKEW_S: Final = 300
"""Largest difference between the time of a gRPC signature and the present time."""
_LAST_WITHOUT_FLAG: Final = 399
"""The ordinal of 4.9.3 in ``MQVersion``: up to it, clients do not sign ``_UNIQUE_KEY_QUERY``."""
_UNIQUE_FLAG: Final = "_UNIQUE_KEY_QUERY"
_GRPC: Final = re.compile(
    r"MQv2-HMAC-SHA1 Credential=(?P<key>[^,/\s]+)[^,]*, *SignedHeaders=x-mq-date-time, *"
    r"Signature=(?P<signature>[0-9a-fA-F]{40})"
)
_ANONYMOUS: Final = User(access_key="anonymous", secret_key="", admin=True)


class AccessControl:
    """Checks users by access key; without users, every client may send every request.

    :param now: returns the present time
    """

    def __init__(
        self,
        users: Mapping[str, User],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._users, self._now = users, now

    @classmethod
    def of(cls, settings: BrokerSettings) -> AccessControl:
        """Build the access control that the settings define.

        Raises :class:`~lakelog.errors.SettingsError` if the users file is damaged, and if there are
        no users and other machines can reach the address.
        """
        if settings.users is not None:
            return cls(read_users(settings.users))
        refuse_exposed(settings)
        return cls({})

    def check_remoting(self, request: Request) -> User:
        """Check the signature and the rights of a request; return its user.

        Raises :class:`Refused` with ``NO_PERMISSION``, and ``KeyError`` for a missing field.
        """
        if not self._users:
            return _ANONYMOUS
        fields = request.fields
        user = self._users.get(fields.get("AccessKey", ""))
        expected = remoting_signature(user.secret_key if user else "", request)
        given = fields.get("Signature", "").encode("utf-8", "replace")
        if not hmac.compare_digest(expected, given) or user is None:
            raise Refused(ResponseCode.NO_PERMISSION, "the access key or the signature is wrong")
        if user.admin:
            return user
        uses = uses_of(request)
        if uses is None:
            remark = f"{user.access_key} is no administrator, as request {request.code} needs"
            raise Refused(ResponseCode.NO_PERMISSION, remark)
        for use in uses:
            self.require(user, use.operation, topic=use.topic, group=use.group)
        return user

    def check_grpc(self, metadata: Mapping[str, str]) -> User:
        """Check the signature of a gRPC call and its time; return its user.

        :param metadata: ``authorization`` and ``x-mq-date-time`` (``yyyyMMddTHHmmssZ``)

        Raises :class:`Refused` with ``NO_PERMISSION``.
        """
        if not self._users:
            return _ANONYMOUS
        found = _GRPC.fullmatch(metadata.get("authorization", ""))
        text = metadata.get("x-mq-date-time", "")
        user = self._users.get(found["key"]) if found else None
        secret = user.secret_key if user else ""
        expected = hmac.digest(secret.encode(), text.encode(), "sha1").hex()
        given = found["signature"].lower() if found else ""
        if not hmac.compare_digest(expected, given) or user is None:
            raise Refused(ResponseCode.NO_PERMISSION, "the access key or the signature is wrong")
        try:
            signed = datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        except ValueError:
            remark = f"x-mq-date-time is no time: {text!r}"
            raise Refused(ResponseCode.NO_PERMISSION, remark) from None
        if abs((self._now() - signed).total_seconds()) > MAX_CLOCK_SKEW_S:
            remark = f"the signature is of {text}, more than {MAX_CLOCK_SKEW_S} s from now"
            raise Refused(ResponseCode.NO_PERMISSION, remark)
        return user

    @staticmethod
    def allows(user: User, operation: AccessRight, *, topic: str = "", group: str = "") -> bool:
        """Whether ``user`` may do ``operation`` on a topic, or else on a group."""
        return user.allows(operation, topic=topic, group=group)

    @staticmethod
    def require(user: User, operation: AccessRight, *, topic: str = "", group: str = "") -> None:
        """Raise :class:`Refused` unless ``user`` may do ``operation`` on the topic or group.

        Without a topic and a group, nothing is checked.
        """
        use = Use(operation, topic, group)
        if (topic or group) and not use.allowed_to(user):
            remark = f"{user.access_key} has no permission for {use}"
            raise Refused(ResponseCode.NO_PERMISSION, remark)


class StoredTopicAccess:
    """Checks the user of a request, also against the topic of a stored message that it names."""

    def __init__(self, broker: Broker) -> None:
        """Read the users; raises :class:`~lakelog.errors.SettingsError`."""
        self._broker, self._access = broker, AccessControl.of(broker.settings)

    def check(self, request: Request) -> None:
        """Raise :class:`~lakelog_broker.codes.Refused` if the user may not send the request."""
        user, fields = self._access.check_remoting(request), request.fields
        if user.admin:
            return
        # The topic is read from the stored message: a client may send none, or a wrong one.
        if request.code == RequestCode.END_TRANSACTION:
            place = int(fields["commitLogOffset"]), int(fields["tranStateTableOffset"])
            topic = self._broker.transactions.topic_of(*place) or ""
            self._access.require(user, AccessRight.PUB, topic=topic)
        elif request.code == RequestCode.CONSUMER_SEND_MSG_BACK:
            topic = self._broker.store.look_up(int(fields["offset"])).topic
            self._access.require(user, AccessRight.SUB, topic=topic)


def remoting_signature(secret: str, request: Request) -> bytes:
    """The expected signature of a remoting request: base64 of an HMAC-SHA1.

    The message is the values of the fields, sorted by name, and the body.
    """
    left_out = {"Signature"}
    if request.version <= _LAST_WITHOUT_FLAG:
        left_out.add(_UNIQUE_FLAG)
    # Java sorts by UTF-16 units; the names of fields are ASCII.
    values = [value for name, value in sorted(request.fields.items()) if name not in left_out]
    content = "".join(values).encode("utf-8", "replace") + request.body
    return base64.b64encode(hmac.digest(secret.encode(), content, "sha1"))
