"""Signatures and permissions of users."""

from __future__ import annotations

import hmac
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from lakelog.errors import SettingsError
from lakelog_broker.codes import Forbidden, Refused, ResponseCode
from lakelog_broker.remoting.frame import RemotingCommand
from lakelog_broker.remoting.requests import RequestCode, check_rights
from lakelog_broker.security import (
    MAX_CLOCK_SKEW_S,
    AccessControl,
    AccessRight,
    Use,
    read_users,
    remoting_signature,
)
from lakelog_broker.settings import BrokerSettings
from lakelog_broker.state import Member, MemberTable, Peer

_SECRET = "secret-of-ann"
_NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
_USERS = """
[[accounts]]
access_key = "ann-key"
secret_key = "secret-of-ann"
default_topic_perm = "SUB"
topic_perms = { orders = "PUB|SUB", closed = "DENY" }
group_perms = { billing = "SUB" }

[[accounts]]
access_key = "root-key"
secret_key = "secret-of-root"
admin = true
"""
SEND = RequestCode.SEND_MESSAGE_V2
_KEYS = ("ann-key", _SECRET), ("root-key", "secret-of-root")


class _NoStore:
    """A broker, as far as rights need one: no message of a store is named."""

    members = MemberTable()


@pytest.fixture
def access(tmp_path: Path) -> AccessControl:
    """Two users, at a fixed time."""
    path = tmp_path / "users.toml"
    path.write_text(_USERS)
    return AccessControl(read_users(path), lambda: _NOW)


def _signed(
    code: int, *, key: str = "ann-key", secret: str = _SECRET, body: bytes = b"", **fields: str
) -> RemotingCommand:
    request = RemotingCommand(code, fields={**fields, "AccessKey": key}, body=body)
    request.fields["Signature"] = remoting_signature(secret, request).decode()
    return request


def _code(access: AccessControl, request: RemotingCommand) -> int:
    try:
        check_rights(cast("Any", _NoStore()), access.remoting_user(request), request)
    except Refused as refused:
        return refused.code
    return ResponseCode.SUCCESS


def test_the_signature_is_of_the_sorted_values_and_the_body() -> None:
    """As RocketMQ's AclUtils and AclSigner compute it (openssl gave the expected text)."""
    fields = {"topic": "b", "AccessKey": "a", "queueId": "7", "Signature": "not signed"}
    request = RemotingCommand(10, fields=fields, body=b"body")
    assert remoting_signature("secret", request) == b"s+7rVeGGBr88x/8NpsxyNmU3JOs="


@pytest.mark.parametrize(
    ("code", "topic", "group", "expected"),
    [
        *((SEND, "orders", "", 0), (SEND, "closed", "", 16), (SEND, "unlisted", "", 16)),
        # A topic of retries is its group, and reading is enough to write to it.
        *((SEND, "%RETRY%billing", "", 0), (SEND, "%RETRY%other", "", 16)),
        (RequestCode.PULL_MESSAGE, "unlisted", "billing", 0),  # by the default
        (RequestCode.PULL_MESSAGE, "closed", "billing", 16),
        (RequestCode.PULL_MESSAGE, "orders", "other", 16),
        (RequestCode.POP_MESSAGE, "orders", "billing", 0),
        (RequestCode.POP_MESSAGE, "closed", "billing", 16),
        (RequestCode.ACK_MESSAGE, "orders", "billing", 0),
        (RequestCode.ACK_MESSAGE, "closed", "billing", 16),
    ],
)
def test_sends_need_pub_and_reads_sub_of_topic_and_group(
    access: AccessControl, code: int, topic: str, group: str, expected: int
) -> None:
    if code == SEND:
        request = _signed(code, b=topic)
    else:
        request = _signed(code, topic=topic, consumerGroup=group)
    assert _code(access, request) == expected


@pytest.mark.parametrize(("topic", "expected"), [("orders", 0), ("closed", 16)])
def test_topics_and_groups_in_a_body_count(
    access: AccessControl, topic: str, expected: int
) -> None:
    group = {"groupName": "billing", "subscriptionDataSet": [{"topic": topic}]}
    contents: dict[int, Any] = {
        RequestCode.QUERY_ASSIGNMENT: {"topic": topic, "consumerGroup": "billing"},
        RequestCode.BATCH_ACK_MESSAGE: {"acks": [{"c": "billing", "t": topic}]},
        RequestCode.HEART_BEAT: {"clientID": "c1", "consumerDataSet": [group]},
    }
    for code, content in contents.items():
        assert _code(access, _signed(code, body=json.dumps(content).encode())) == expected


def test_a_body_that_is_no_heartbeat_is_a_bad_parameter(access: AccessControl) -> None:
    for bad in (b"", b"[]", b"[" * 100_000, b'{"consumerDataSet":[3]}', b'{"consumerDataSet":3}'):
        request = _signed(RequestCode.HEART_BEAT, body=bad)
        assert _code(access, request) == ResponseCode.INVALID_PARAMETER


def test_unlisted_codes_are_for_administrators(access: AccessControl) -> None:
    """Also codes that no broker knows."""
    names = ("UPDATE_AND_CREATE", "DELETE_", "GET_TOPIC", "GET_ALL")
    for code in (9999, *(each for each in RequestCode if each.name.startswith(names))):
        assert _code(access, _signed(code, topic="orders")) == 16
        root = _signed(code, key="root-key", secret="secret-of-root", topic="orders")
        assert _code(access, root) == 0


def test_changed_requests_are_refused(access: AccessControl) -> None:
    """A change of a field or the body, another secret, an unknown user, no signature."""
    good = _signed(SEND, b="orders", body=b"x")
    assert _code(access, good) == 0
    good.body = b"y"
    assert _code(access, good) == 16
    good.body = b"x"
    good.fields["e"] = "1"
    assert _code(access, good) == 16
    assert _code(access, _signed(SEND, secret="secret-of-root", b="orders")) == 16
    assert _code(access, _signed(SEND, key="unknown", secret="", b="orders")) == 16
    assert _code(access, RemotingCommand(SEND, fields={"b": "orders"})) == 16
    assert _code(access, RemotingCommand(SEND, fields={"Signature": "\udcff\u1234"})) == 16


def _grpc(signed: datetime, key: str = "ann-key", secret: str = _SECRET) -> dict[str, str]:
    text = signed.strftime("%Y%m%dT%H%M%SZ")
    signature = hmac.digest(secret.encode(), text.encode(), "sha1").hex().upper()
    head = f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders=x-mq-date-time, Signature={signature}"
    return {"authorization": head, "x-mq-date-time": text}


def test_grpc_signatures(access: AccessControl) -> None:
    """A right one names its user; wrong, missing and replayed ones are refused."""
    user = access.grpc_user(_grpc(_NOW))
    assert user.access_key == "ann-key"
    assert _SECRET not in repr(user)
    root = access.grpc_user(_grpc(_NOW, key="root-key", secret="secret-of-root"))
    for each, allowed in ((user, False), (root, True)):
        assert Use(AccessRight.PUB, topic="closed").allowed_to(each) is allowed
    late = timedelta(seconds=MAX_CLOCK_SKEW_S + 1)
    for bad in (
        _grpc(_NOW - late),
        _grpc(_NOW + late),
        _grpc(_NOW, secret="another"),
        _grpc(_NOW, key="unknown"),
        {**_grpc(_NOW), "x-mq-date-time": "20260304T050608Z"},
        {"authorization": "Basic abc"},
        {},
    ):
        with pytest.raises(Refused) as caught:
            access.grpc_user(bad)
        assert caught.value.code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize(
    "text",
    [
        *("", "accounts = 3", "[[accounts]]", "nonsense", _USERS + _USERS),
        "[[accounts]]\naccess_key='short'\nsecret_key='b'",
        *(_USERS + "more = 1", _USERS + "[other]"),
        _USERS.replace("PUB|SUB", "WRITE"),
        _USERS.replace("admin = true", "admin = 1"),
    ],
)
def test_damaged_users_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "users.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=r"users\.toml"):
        read_users(path)


def test_addresses_that_others_reach_need_users() -> None:
    """Unless the setting says otherwise."""
    with pytest.raises(SettingsError, match="allow_anonymous"):
        AccessControl.of(BrokerSettings(host="0.0.0.0"))
    AccessControl.of(BrokerSettings(host="0.0.0.0", allow_anonymous=True))
    access = AccessControl.of(BrokerSettings(host="127.0.0.2"))
    assert access.remoting_user(RemotingCommand(9999)).admin


def test_a_client_id_is_its_users_while_it_is_connected(access: AccessControl) -> None:
    """In any group of either kind, until the last one is left."""
    ann, root = (access.grpc_user(_grpc(_NOW, key, secret)) for key, secret in _KEYS)
    members, peer = MemberTable(), Peer()
    members.check_client("c1", root)
    members.join("billing", Member("c1", peer, 0.0, user=ann))
    members.join("billing", Member("c1", peer, 1.0, user=ann))
    members.join_producers("shop", Member("c1", peer, 0.0, user=ann))
    members.check_client("c1", ann)
    members.leave("c1", "billing", None)
    with pytest.raises(Forbidden, match="another user's"):
        members.check_client("c1", root)
    members.disconnected(peer)
    members.check_client("c1", root)
    assert members.producers == {}
