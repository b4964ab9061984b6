"""The users of a broker and their permissions, read from a TOML file.

The file has the terms of RocketMQ's ``plain_acl.yml``::

    [[accounts]]
    access_key = "producer1"
    secret_key = "at least six characters"
    admin = false
    default_topic_perm = "DENY"
    default_group_perm = "SUB"
    topic_perms = { orders = "PUB|SUB", audit = "DENY" }
    group_perms = { billing = "SUB" }

The topics and groups that a remoting request uses.

Source: RocketMQ 4.9, ``PlainAccessValidator``. Here more requests need an administrator.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from enum import Flag
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import attrs

from lakelog.errors import SettingsError
from lakelog_broker.codes import Refused, RequestCode, ResponseCode, body_of
from lakelog_queues.groups.set_aside import RETRY_PREFIX

MIN_KEY_LENGTH: Final = 6
"""RocketMQ's least length of an access key and of a secret."""


class AccessRight(Flag):
    """Operations on a topic or a group."""

    DENY = 0
    PUB = 1
    SUB = 2


_PERMISSIONS: Final = {
    "DENY": AccessRight.DENY,
    "PUB": AccessRight.PUB,
    "SUB": AccessRight.SUB,
    "PUB|SUB": AccessRight.PUB | AccessRight.SUB,
    "SUB|PUB": AccessRight.PUB | AccessRight.SUB,
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

    def allows(self, operation: AccessRight, *, topic: str = "", group: str = "") -> bool:
        """Whether the user may do ``operation`` on a topic, or else on a group."""
        if self.admin:
            return True
        if topic:
            return operation in self.topic_perms.get(topic, self.default_topic_perm)
        return operation in self.group_perms.get(group, self.default_group_perm)


def read_users(path: Path) -> dict[str, User]:
    """Read the users of a TOML file, by access key; raises :class:`SettingsError`."""
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


_PUB, _SUB = AccessRight.PUB, AccessRight.SUB


class Request(Protocol):
    """The parts of a remoting command that access control reads."""

    code: int
    fields: dict[str, str]
    body: bytes
    version: int


@attrs.frozen
class Use:
    """An operation on a topic, or on a group."""

    operation: AccessRight
    topic: str = ""
    group: str = ""

    def allowed_to(self, user: User) -> bool:
        """Whether ``user`` may do it; a retry topic needs the right to its group."""
        if self.topic.startswith(RETRY_PREFIX):
            return user.allows(_SUB, group=self.topic.removeprefix(RETRY_PREFIX))
        return user.allows(self.operation, topic=self.topic, group=self.group)

    def __str__(self) -> str:
        named = f"the topic {self.topic}" if self.topic else f"the group {self.group}"
        return f"{self.operation.name} of {named}"


_Uses: TypeAlias = Callable[[Request], Iterator[Use]]


def _sends(field: str) -> _Uses:
    def uses(request: Request) -> Iterator[Use]:
        yield Use(_PUB, topic=request.fields[field])

    return uses


def _reads(*names: str) -> _Uses:
    """Uses of a request that reads the topics and groups in the fields ``names``."""

    def uses(request: Request) -> Iterator[Use]:
        for name in names:
            value = request.fields.get(name)
            if value and name.lower().endswith("topic"):
                yield Use(_SUB, topic=value)
            elif value:
                yield Use(_SUB, group=value)

    return uses


def _sends_back(request: Request) -> Iterator[Use]:
    yield Use(_SUB, group=request.fields["group"])
    if request.fields.get("originTopic"):
        yield Use(_SUB, topic=request.fields["originTopic"])


def _heart_beat(request: Request) -> Iterator[Use]:
    for each in body_of(request).get("consumerDataSet") or ():
        yield Use(_SUB, group=each["groupName"])
        for data in each.get("subscriptionDataSet") or ():
            yield Use(_SUB, topic=data["topic"])


def _locks(request: Request) -> Iterator[Use]:
    content = body_of(request)
    yield Use(_SUB, group=content["consumerGroup"])
    for queue in content["mqSet"]:
        yield Use(_SUB, topic=queue["topic"])


def _acknowledges(request: Request) -> Iterator[Use]:
    for each in body_of(request).get("acks") or ():
        yield Use(_SUB, group=each["c"])
        yield Use(_SUB, topic=each["t"])


def _asks_for_queues(request: Request) -> Iterator[Use]:
    content = body_of(request)
    yield Use(_SUB, group=content["consumerGroup"])
    yield Use(_SUB, topic=content["topic"])


def _ends_transaction(request: Request) -> Iterator[Use]:
    if request.fields.get("topic"):  # clients before 5.3 do not send it
        yield Use(_PUB, topic=request.fields["topic"])


def _nothing(_request: Request) -> Iterator[Use]:
    return iter(())


_USES: Final[Mapping[int, _Uses]] = {
    RequestCode.SEND_MESSAGE: _sends("topic"),
    RequestCode.SEND_MESSAGE_V2: _sends("b"),
    RequestCode.SEND_BATCH_MESSAGE: _sends("b"),
    RequestCode.SEND_REPLY_MESSAGE: _sends("topic"),
    RequestCode.SEND_REPLY_MESSAGE_V2: _sends("b"),
    RequestCode.CONSUMER_SEND_MSG_BACK: _sends_back,
    RequestCode.PULL_MESSAGE: _reads("topic", "consumerGroup"),
    RequestCode.LITE_PULL_MESSAGE: _reads("topic", "consumerGroup"),
    RequestCode.QUERY_MESSAGE: _reads("topic"),
    RequestCode.HEART_BEAT: _heart_beat,
    RequestCode.CHECK_CLIENT_CONFIG: _nothing,
    RequestCode.UNREGISTER_CLIENT: _reads("consumerGroup"),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _reads("consumerGroup"),
    RequestCode.QUERY_CONSUMER_OFFSET: _reads("topic", "consumerGroup"),
    RequestCode.UPDATE_CONSUMER_OFFSET: _reads("topic", "consumerGroup"),
    RequestCode.LOCK_BATCH_MQ: _locks,
    RequestCode.UNLOCK_BATCH_MQ: _locks,
    RequestCode.POP_MESSAGE: _reads("topic", "consumerGroup"),
    RequestCode.ACK_MESSAGE: _reads("topic", "consumerGroup"),
    RequestCode.BATCH_ACK_MESSAGE: _acknowledges,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _reads("topic", "consumerGroup"),
    RequestCode.NOTIFICATION: _reads("topic", "consumerGroup"),
    RequestCode.PEEK_MESSAGE: _reads("topic", "consumerGroup"),
    RequestCode.QUERY_ASSIGNMENT: _asks_for_queues,
    RequestCode.RECALL_MESSAGE: _sends("topic"),
    RequestCode.END_TRANSACTION: _ends_transaction,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: _nothing,
    RequestCode.GET_BROKER_CLUSTER_INFO: _nothing,
    RequestCode.GET_MAX_OFFSET: _reads("topic"),
    RequestCode.GET_MIN_OFFSET: _reads("topic"),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _reads("topic"),
    RequestCode.GET_EARLIEST_MSG_STORETIME: _reads("topic"),
}


def uses_of(request: Request) -> list[Use] | None:
    """The uses that must be allowed; ``None`` for a request that only an administrator may send.

    A code that is not in the table needs an administrator, so that a new code is closed until it is
    listed. Raises ``KeyError`` for a missing field, and :class:`Refused` for a malformed body.
    """
    uses = _USES.get(request.code)
    try:
        return None if uses is None else list(uses(request))
    except (TypeError, AttributeError) as error:
        remark = f"the body has values of other types: {error}"
        raise Refused(ResponseCode.INVALID_PARAMETER, remark) from None
