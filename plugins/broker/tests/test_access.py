"""Signatures and permissions of users."""

from __future__ import annotations

import hmac
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lakelog.errors import SettingsError
from lakelog_broker.codes import Refused, RequestCode, ResponseCode
from lakelog_broker.remoting.frame import RemotingCommand
from lakelog_broker.security.access import MAX_CLOCK_SKEW_S, AccessControl, remoting_signature
from lakelog_broker.security.requests import uses_of
from lakelog_broker.security.users import AccessRight, User, read_users
from lakelog_broker.settings import BrokerSettings

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
        access.check_remoting(request)
    except Refused as refused:
        return refused.code
    return ResponseCode.SUCCESS


def test_the_signature_is_of_the_sorted_values_and_the_body() -> None:
    """As RocketMQ's AclUtils and AclSigner compute it (openssl gave the expected text)."""
    fields = {"topic": "b", "AccessKey": "a", "queueId": "7", "Signature": "not signed"}
    request = RemotingCommand(10, fields=fields, body=b"body")
    assert remoting_signature("secret", request) == b"s+7rVeGGBr88x/8NpsxyNmU3JOs="


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("orders", ResponseCode.SUCCESS),
        ("closed", 16),
        ("unlisted", 16),
        ("%RETRY%billing", 0),
        ("%RETRY%other", 16),
    ],
)
def test_sends_need_pub(access: AccessControl, topic: str, code: int) -> None:
    """A topic of retries is its group, and reading is enough to write to it."""
    assert _code(access, _signed(RequestCode.SEND_MESSAGE_V2, b=topic)) == code


def test_pulls_need_sub_of_topic_and_group(access: AccessControl) -> None:
    """A default applies to what is not listed."""
    pull = RequestCode.PULL_MESSAGE
    assert _code(access, _signed(pull, topic="unlisted", consumerGroup="billing")) == 0
    assert _code(access, _signed(pull, topic="closed", consumerGroup="billing")) == 16
    assert _code(access, _signed(pull, topic="orders", consumerGroup="other")) == 16


def test_pops_need_sub_of_topic_and_group(access: AccessControl) -> None:
    """In fields, or in a body."""
    for code in (RequestCode.POP_MESSAGE, RequestCode.ACK_MESSAGE):
        assert _code(access, _signed(code, topic="orders", consumerGroup="billing")) == 0
        assert _code(access, _signed(code, topic="closed", consumerGroup="billing")) == 16
    for topic, expected in (("orders", 0), ("closed", 16)):
        asked = json.dumps({"topic": topic, "consumerGroup": "billing"}).encode()
        assert _code(access, _signed(RequestCode.QUERY_ASSIGNMENT, body=asked)) == expected
        acks = json.dumps({"acks": [{"c": "billing", "t": topic}]}).encode()
        assert _code(access, _signed(RequestCode.BATCH_ACK_MESSAGE, body=acks)) == expected


def test_unlisted_codes_are_for_administrators(access: AccessControl) -> None:
    """Also codes that no broker knows."""
    for code in (RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.DELETE_TOPIC_IN_BROKER, 9999):
        assert _code(access, _signed(code, topic="orders")) == 16
        root = _signed(code, key="root-key", secret="secret-of-root", topic="orders")
        assert _code(access, root) == 0


def test_changed_requests_are_refused(access: AccessControl) -> None:
    """A change of a field or the body, another secret, an unknown user, no signature."""
    good = _signed(RequestCode.SEND_MESSAGE_V2, b="orders", body=b"x")
    assert _code(access, good) == 0
    good.body = b"y"
    assert _code(access, good) == 16
    good.body = b"x"
    good.fields["e"] = "1"
    assert _code(access, good) == 16
    code = RequestCode.SEND_MESSAGE_V2
    assert _code(access, _signed(code, secret="secret-of-root", b="orders")) == 16
    assert _code(access, _signed(code, key="unknown", secret="", b="orders")) == 16
    assert _code(access, RemotingCommand(code, fields={"b": "orders"})) == 16
    assert _code(access, RemotingCommand(code, fields={"Signature": "\udcff\u1234"})) == 16


def test_heartbeats_need_sub_of_each_subscription(access: AccessControl) -> None:
    """A body that is no heartbeat is a bad parameter."""
    code = RequestCode.HEART_BEAT
    body = b'{"consumerDataSet":[{"groupName":"billing","subscriptionDataSet":[{"topic":"%s"}]}]}'
    assert _code(access, _signed(code, body=body % b"orders")) == 0
    assert _code(access, _signed(code, body=body % b"closed")) == 16
    for bad in (b"", b"[]", b"[" * 100_000, b'{"consumerDataSet":[3]}', b'{"consumerDataSet":3}'):
        assert _code(access, _signed(code, body=bad)) == ResponseCode.INVALID_PARAMETER


def _grpc(signed: datetime, key: str = "ann-key", secret: str = _SECRET) -> dict[str, str]:
    text = signed.strftime("%Y%m%dT%H%M%SZ")
    signature = hmac.digest(secret.encode(), text.encode(), "sha1").hex().upper()
    head = f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders=x-mq-date-time, Signature={signature}"
    return {"authorization": head, "x-mq-date-time": text}


def test_grpc_signatures(access: AccessControl) -> None:
    """A right one names its user; wrong, missing and replayed ones are refused."""
    assert access.check_grpc(_grpc(_NOW)).access_key == "ann-key"
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
            access.check_grpc(bad)
        assert caught.value.code == ResponseCode.NO_PERMISSION


def test_permissions_of_topics_and_groups(access: AccessControl) -> None:
    """An administrator may do everything."""
    ann = access.check_grpc(_grpc(_NOW))
    assert access.allows(ann, AccessRight.PUB, topic="orders")
    assert not access.allows(ann, AccessRight.PUB, topic="unlisted")
    assert access.allows(ann, AccessRight.SUB, group="billing")
    assert not access.allows(ann, AccessRight.SUB, group="other")
    root = User(access_key="root-key", secret_key="x", admin=True)
    assert access.allows(root, AccessRight.PUB, topic="closed")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "accounts = 3",
        "[[accounts]]",
        "nonsense",
        "[[accounts]]\naccess_key='short'\nsecret_key='b'",
        _USERS + _USERS,
        _USERS + "more = 1",
        _USERS.replace("PUB|SUB", "WRITE"),
        _USERS.replace("admin = true", "admin = 1"),
        _USERS + "[other]",
    ],
)
def test_damaged_users_files_are_refused(tmp_path: Path, text: str) -> None:
    """The error names the file."""
    path = tmp_path / "users.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=r"users\.toml"):
        read_users(path)


def test_secrets_are_not_shown(access: AccessControl) -> None:
    """As in a log or a traceback."""
    assert _SECRET not in repr(access.check_grpc(_grpc(_NOW)))


def test_addresses_that_others_reach_need_users() -> None:
    """Unless the setting says otherwise."""
    with pytest.raises(SettingsError, match="allow_anonymous"):
        AccessControl.of(BrokerSettings(host="0.0.0.0"))
    AccessControl.of(BrokerSettings(host="0.0.0.0", allow_anonymous=True))
    access = AccessControl.of(BrokerSettings(host="127.0.0.2"))
    assert access.check_remoting(RemotingCommand(9999)).admin


def test_every_request_of_a_client_is_listed() -> None:
    """A code without uses is for administrators; this list is checked against the table."""
    administration = {
        each
        for each in RequestCode
        if each.name.startswith(("UPDATE_AND_CREATE", "DELETE_", "GET_TOPIC", "GET_ALL"))
    }
    assert all(uses_of(RemotingCommand(each)) is None for each in administration)
