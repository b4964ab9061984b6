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
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from enum import Flag
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog.errors import SettingsError

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
