"""The users of a broker: their file, their rights, and the signatures of their requests.

The file is TOML, with the terms of RocketMQ's ``plain_acl.yml``::

    [[accounts]]
    access_key = "producer1"
    secret_key = "at least six characters"
    admin = false
    default_topic_perm = "DENY"
    default_group_perm = "SUB"
    topic_perms = { orders = "PUB|SUB", audit = "DENY" }
    group_perms = { billing = "SUB" }

Sources: RocketMQ 5.3.3, ``AclClientRPCHook``, ``AclUtils`` and
``DefaultAuthenticationContextBuilder``; rocketmq-clients, ``Signature``.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Flag
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog.errors import SettingsError
from lakelog_broker.codes import Forbidden
from lakelog_broker.remoting.frame import RemotingCommand
from lakelog_broker.settings import BrokerSettings, refuse_exposed
from lakelog_queues.groups.set_aside import RETRY_PREFIX

MAX_CLOCK_SKEW_S: Final = 300
"""Largest difference between the time of a gRPC signature and the present time."""
_LAST_WITHOUT_FLAG: Final = 399
"""The ordinal of 4.9.3 in ``MQVersion``: up to it, clients do not sign ``_UNIQUE_KEY_QUERY``."""
_UNIQUE_FLAG: Final = "_UNIQUE_KEY_QUERY"
_GRPC: Final = re.compile(
    r"MQv2-HMAC-SHA1 Credential=(?P<key>[^,/\s]+)[^,]*, *SignedHeaders=x-mq-date-time, *"
    r"Signature=(?P<signature>[0-9a-fA-F]{40})"
)
_WRONG: Final = "the access key or the signature is wrong"
INNER_PRODUCERS: Final = "CLIENT_INNER_PRODUCER"
"""RocketMQ's ``MixAll.CLIENT_INNER_PRODUCER_GROUP``."""
MIN_KEY_LENGTH: Final = 6
"""RocketMQ's least length of an access key and of a secret."""


class AccessRight(Flag):
    """Operations on a topic or a group."""

    DENY = 0
    PUB = 1
    SUB = 2


_PERMISSIONS: Final = {
    **AccessRight.__members__,
    **dict.fromkeys(("PUB|SUB", "SUB|PUB"), AccessRight.PUB | AccessRight.SUB),
}


@attrs.frozen(kw_only=True)
class User:
    """A user.

    :ivar secret_key: the key of the user's signatures
    :ivar admin: whether all operations are allowed, including administration
    :ivar default_topic_perm: rights to topics that ``topic_perms`` does not list
    :ivar default_group_perm: rights to groups that ``group_perms`` does not list
    """

    access_key: str
    secret_key: str = attrs.field(repr=False)
    admin: bool = False
    default_topic_perm: AccessRight = AccessRight.DENY
    default_group_perm: AccessRight = AccessRight.DENY
    topic_perms: Mapping[str, AccessRight] = attrs.field(factory=dict)
    group_perms: Mapping[str, AccessRight] = attrs.field(factory=dict)

    @property
    def may_send(self) -> bool:
        """Whether there is a topic to which the user may send."""
        rights = (self.default_topic_perm, *self.topic_perms.values())
        return self.admin or any(AccessRight.PUB in each for each in rights)


def read_users(path: Path) -> dict[str, User]:
    """Read the users of a TOML file, by access key; raises :class:`SettingsError`."""
    import tomllib  # most brokers have no users

    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"the users file {path} cannot be read: {error}") from error
    accounts = content.get("accounts")
    if not isinstance(accounts, list) or not accounts or set(content) != {"accounts"}:
        raise SettingsError(f"the users file {path} must have tables [[accounts]], and no other")
    users: dict[str, User] = {}
    for number, account in enumerate(accounts, 1):
        try:
            user = _user(account)
        except ValueError as error:
            raise SettingsError(f"account {number} of the users file {path}: {error}") from None
        if user.access_key in users:
            raise SettingsError(f"the users file {path} has {user.access_key!r} twice")
        users[user.access_key] = user
    return users


def _user(account: Any) -> User:
    known = {field.name for field in attrs.fields(User)}
    if not isinstance(account, dict) or set(account) - known:
        raise ValueError(f"the names of an account are {', '.join(sorted(known))}")
    fields = dict(account)
    for name in ("access_key", "secret_key"):
        if not isinstance(fields.get(name), str) or len(fields[name]) < MIN_KEY_LENGTH:
            raise ValueError(f"{name} must be a text of at least {MIN_KEY_LENGTH} characters")
    if not isinstance(fields.get("admin", False), bool):
        raise ValueError("admin must be true or false")
    for name in ("default_topic_perm", "default_group_perm"):
        if name in fields:
            fields[name] = _permission(fields[name])
    for name in ("topic_perms", "group_perms"):
        table = fields.get(name, {})
        if not isinstance(table, dict):
            raise ValueError(f"{name} must be a table of names and permissions")
        fields[name] = {each: _permission(value) for each, value in table.items()}
    return User(**fields)


def _permission(text: object) -> AccessRight:
    if not isinstance(text, str) or text.replace(" ", "") not in _PERMISSIONS:
        raise ValueError(f"{text!r} is no permission; use PUB, SUB, PUB|SUB or DENY")
    return _PERMISSIONS[text.replace(" ", "")]


@attrs.frozen
class Use:
    """An operation on a topic, on a consumer group, or on a producer group.

    :ivar operation: of several flags, any one is enough
    """

    operation: AccessRight
    topic: str = ""
    group: str = ""
    producers: str = ""

    def allowed_to(self, user: User) -> bool:
        """Whether ``user`` may do it; a retry topic needs the right to its group.

        A producer group needs the right to send to some topic: half messages of another topic are
        not sent to its members. Every Java client, also a consumer, has the inner producer group.
        """
        if user.admin:
            return True
        if self.producers:
            return user.may_send or self.producers == INNER_PRODUCERS
        if self.topic.startswith(RETRY_PREFIX):
            group = self.topic.removeprefix(RETRY_PREFIX)
            return Use(AccessRight.SUB, group=group).allowed_to(user)
        if self.topic:
            given = user.topic_perms.get(self.topic, user.default_topic_perm)
        else:
            given = user.group_perms.get(self.group, user.default_group_perm)
        return bool(self.operation.value & given.value)  # flags take much longer

    def require_of(self, user: User) -> None:
        """Raise :class:`Refused` unless it is allowed to ``user``."""
        if not self.allowed_to(user):
            raise Forbidden(f"{user.access_key} has no permission for {self}")

    def __str__(self) -> str:
        if self.producers:
            return f"PUB of any topic, which the producer group {self.producers:.300} needs"
        named = f"the topic {self.topic}" if self.topic else f"the group {self.group}"
        return f"{self.operation.name} of {named:.300}"


ANONYMOUS: Final = User(access_key="anonymous", secret_key="", admin=True)


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

    def remoting_user(self, request: RemotingCommand) -> User:
        """Check the signature of a request; return its user.

        Raises :class:`Refused` with ``NO_PERMISSION``.
        """
        if not self._users:
            return ANONYMOUS
        fields = request.fields
        user = self._users.get(fields.get("AccessKey", ""))
        expected = remoting_signature(user.secret_key if user else "", request)
        given = fields.get("Signature", "").encode("utf-8", "replace")
        if not hmac.compare_digest(expected, given) or user is None:
            raise Forbidden(_WRONG)
        return user

    def grpc_user(self, metadata: Mapping[str, str]) -> User:
        """Check the signature of a gRPC call and its time; return its user.

        :param metadata: ``authorization`` and ``x-mq-date-time`` (``yyyyMMddTHHmmssZ``)

        Raises :class:`Refused` with ``NO_PERMISSION``.
        """
        if not self._users:
            return ANONYMOUS
        found = _GRPC.fullmatch(metadata.get("authorization", ""))
        text = metadata.get("x-mq-date-time", "")
        user = self._users.get(found["key"]) if found else None
        secret = user.secret_key if user else ""
        expected = hmac.digest(secret.encode(), text.encode(), "sha1").hex()
        given = found["signature"].lower() if found else ""
        if not hmac.compare_digest(expected, given) or user is None:
            raise Forbidden(_WRONG)
        try:
            signed = datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        except ValueError:
            raise Forbidden(f"x-mq-date-time is no time: {text!r}") from None
        if abs((self._now() - signed).total_seconds()) > MAX_CLOCK_SKEW_S:
            raise Forbidden(f"the signature is of {text}, more than {MAX_CLOCK_SKEW_S} s from now")
        return user


def remoting_signature(secret: str, request: RemotingCommand) -> bytes:
    """The expected signature of a remoting request: base64 of an HMAC-SHA1.

    The message is the values of the fields, sorted by name, and the body.
    """
    is_old = request.version <= _LAST_WITHOUT_FLAG
    left_out = {"Signature", _UNIQUE_FLAG} if is_old else {"Signature"}
    # Java sorts by UTF-16 units; the names of fields are ASCII.
    values = [value for name, value in sorted(request.fields.items()) if name not in left_out]
    content = "".join(values).encode("utf-8", "replace") + request.body
    return base64.b64encode(hmac.digest(secret.encode(), content, "sha1"))
