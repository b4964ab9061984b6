"""TLS on the same port, the number of connections, users, and peers that send nonsense."""

from __future__ import annotations

import asyncio
import resource
import shutil
import ssl
import subprocess
import time
from pathlib import Path

import pytest

from lakelog.errors import SettingsError
from lakelog_broker.broker import Broker
from lakelog_broker.codes import ResponseCode
from lakelog_broker.remoting.frame import (
    MAX_FRAME_BYTES,
    RemotingCommand,
    decode_frame,
    encode_frame,
)
from lakelog_broker.remoting.requests import RequestCode
from lakelog_broker.remoting.server import busy_answer, tls_context
from lakelog_broker.settings import BrokerSettings
from lakelog_daemon import connection_limits
from plugins.broker.tests.support import Client, at_a_broker, run_at_a_broker

_TLS_HELLO = bytes.fromhex("1603010200010001fc0303")
"""The beginning of a handshake, without its rest."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A self-signed certificate for 127.0.0.1, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    folder = tmp_path_factory.mktemp("tls")
    paths = {"certificate": folder / "certificate.pem", "key": folder / "key.pem"}
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=tests", "-addext"),
            *("subjectAltName=IP:127.0.0.1", "-out", paths["certificate"]),
            *("-keyout", paths["key"]),
        ],
        check=True,
        capture_output=True,
    )
    return paths


async def _secure(broker: Broker, certificate: dict[str, Path]) -> Client:
    context = ssl.create_default_context(cafile=str(certificate["certificate"]))
    return await Client.to(broker, context)


def test_tls_and_plain_share_a_port(tmp_path: Path, certificate: dict[str, Path]) -> None:
    """Permissive: both kinds are served, large frames too."""

    async def work(broker: Broker, plain: Client) -> None:
        assert await plain.is_served()
        secure = await _secure(broker, certificate)
        for body in (b"x", b"y" * 500_000):
            assert (await secure.send("orders", body)).code == ResponseCode.SUCCESS
        assert secure.writer.get_extra_info("ssl_object").version() in ("TLSv1.2", "TLSv1.3")
        secure.close()

    run_at_a_broker(tmp_path, work, tls="permissive", **certificate)


def test_tls_can_be_required(tmp_path: Path, certificate: dict[str, Path]) -> None:
    """A plain client is disconnected, and one with TLS is served."""

    async def work(broker: Broker, plain: Client) -> None:
        plain.writer.write(encode_frame(RemotingCommand(RequestCode.GET_MAX_OFFSET)))
        assert await plain.ended()
        secure = await _secure(broker, certificate)
        assert await secure.is_served()
        secure.close()

    run_at_a_broker(tmp_path, work, tls="required", **certificate)


def test_half_open_connections_end(tmp_path: Path, certificate: dict[str, Path]) -> None:
    """No byte, half a handshake: both are closed, and a client beside them is served."""

    async def work(broker: Broker, good: Client) -> None:
        assert await good.is_served()
        silent, half = await Client.to(broker), await Client.to(broker)
        half.writer.write(_TLS_HELLO)
        assert await silent.ended()
        assert await half.ended()
        assert await good.is_served()

    settings = {"tls": "permissive", "first_byte_timeout_s": 0.3}
    run_at_a_broker(tmp_path, work, **settings, **certificate)


def test_settings_of_tls_are_checked(tmp_path: Path) -> None:
    """Without a certificate, or with a file that is none."""
    with pytest.raises(SettingsError, match="certificate"):
        tls_context(BrokerSettings(tls="required"))
    path = tmp_path / "certificate.pem"
    with pytest.raises(SettingsError, match=r"certificate\.pem"):
        tls_context(BrokerSettings(tls="required", certificate=path))
    path.write_text("no certificate")
    with pytest.raises(SettingsError, match=r"certificate\.pem"):
        tls_context(BrokerSettings(tls="required", certificate=path))


@at_a_broker(max_connections=3)
async def test_connections_are_limited(
    broker: Broker,
    client: Client,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One more is closed; after one ends, a new one is served."""
    monkeypatch.setattr(connection_limits, "_QUIET_S", 1e9)  # none is idle
    clients = [client, await Client.to(broker), await Client.to(broker)]
    for each in clients:
        assert await each.is_served()
    for _ in range(2):
        assert await (await Client.to(broker)).ended()
    clients.pop().close()
    clients.append(await _served_at_last(broker))
    for each in clients:
        assert await each.is_served()
        each.close()
    assert any("max_connections" in each.message for each in caplog.records)


def test_a_connection_that_is_refused_gets_an_answer_to_its_request() -> None:
    """As soon as the header has come."""
    frame = encode_frame(RemotingCommand(RequestCode.SEND_MESSAGE_V2, 7, 0, {}, b"body"))
    for received in (frame, frame[:-3]):
        answer = decode_frame(busy_answer(received)[4:])
        assert (answer.code, answer.opaque) == (ResponseCode.SYSTEM_BUSY, 7)
    for received in (b"", frame[:30], b"\x16\x03\x01"):
        assert busy_answer(received) == b""


@at_a_broker(max_waiting_requests=1)
async def test_requests_that_wait_are_limited(broker: Broker, client: Client) -> None:
    """Others are served, and so is one that waits after the end of the former."""
    code = RequestCode.NOTIFICATION
    fields = {"consumerGroup": "g", "topic": "empty", "queueId": "-1"}
    fields |= {"pollTime": "60000", "bornTime": str(time.time_ns() // 1_000_000)}
    broker.topics.create("empty", 1)
    first = await Client.to(broker)
    first.writer.write(encode_frame(RemotingCommand(code, 1, 0, fields)))
    while not broker.limits.waiting:
        await asyncio.sleep(0.01)
    assert (await client.call(code, **fields)).code == ResponseCode.SYSTEM_BUSY
    assert await client.is_served()
    first.close()
    while broker.limits.waiting:
        await asyncio.sleep(0.01)
    assert (await client.call(code, **{**fields, "pollTime": "1"})).code == ResponseCode.SUCCESS


@at_a_broker(idle_timeout_s=0.3)
async def test_silent_clients_are_disconnected(broker: Broker, client: Client) -> None:
    assert await client.is_served()
    assert await client.ended()


@at_a_broker(max_held_bytes=1 << 20)
async def test_unfinished_requests_are_limited(broker: Broker, client: Client) -> None:
    assert await client.is_served()
    half = await Client.to(broker)
    half.writer.write(_number(4 << 20) + bytes(2 << 20))
    assert await half.ended()
    assert (await client.send("orders", bytes(900_000))).code == ResponseCode.SUCCESS


async def _served_at_last(broker: Broker) -> Client:
    """A client that is served once the broker has noted the end of another."""
    while True:
        client = await Client.to(broker)
        try:
            assert await client.is_served()
        except (asyncio.IncompleteReadError, ConnectionError):
            client.close()
            await asyncio.sleep(0.01)
        else:
            return client


def _number(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)


NONSENSE = {
    "negative": _number(-1),
    "empty": _number(0),
    "too short": _number(3),
    "too long": _number(MAX_FRAME_BYTES + 1),
    "longest": _number(2**31 - 1),
    "header too long": _number(8) + _number(2**24 - 1) + b"{}{}",
    "unknown form": _number(8) + b"\x07\x00\x00\x00" + b"{}{}",
    "too deep": _number(4 + 200_000) + _number(200_000) + b"[" * 200_000,
    "list": _number(6) + _number(2) + b"[]",
    "no header": _number(4) + _number(0),
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
}


@at_a_broker()
async def test_nonsense_ends_its_connection_only(broker: Broker, good: Client) -> None:
    for name, data in NONSENSE.items():
        bad = await Client.to(broker)
        bad.writer.write(data)
        assert await bad.ended(), name
        assert await good.is_served()


@at_a_broker()
async def test_torn_frames_and_slow_writers(broker: Broker, good: Client) -> None:
    """A frame that ends at any byte has no effect; one that comes byte by byte is served."""
    request = RemotingCommand(310, 1, 0, {"a": "g", "b": "slow", "e": "0", "g": "1", "c": "TBW102"})
    frame = encode_frame(request)
    for end in range(len(frame)):
        torn = await Client.to(broker)
        torn.writer.write(frame[:end])
        await torn.writer.drain()
        torn.close()
    slow = await Client.to(broker)
    for byte in frame:
        slow.writer.write(bytes([byte]))
        await slow.writer.drain()
        assert await good.is_served()
    assert (await slow.receive()).fields["queueOffset"] == "0"
    slow.close()


@at_a_broker()
async def test_every_code_without_its_fields(broker: Broker, client: Client) -> None:
    """Each is answered, and the connection stays."""
    for code in (*RequestCode, -32768, 0, 9999, 32767):
        for body in (b"", b"{}", b"[1]", b'{"mqSet":3,"clientID":[]}', b"[" * 50_000):
            found = await client.call(code, body, offset="-9" * 30, topic="\x00", queueId="x")
            assert found.is_response
    assert await client.is_served()


@pytest.mark.parametrize("count", [500, pytest.param(5000, marks=pytest.mark.slow)])
def test_many_connections(tmp_path: Path, count: int) -> None:
    """Each is served, and so is one beside them; none is left in the broker's tables."""

    async def work(broker: Broker, beside: Client) -> None:
        clients = [await Client.to(broker) for _ in range(count)]
        for start in range(0, count, 100):
            few = clients[start : start + 100]
            found = await asyncio.gather(*(each.send("orders") for each in few))
            assert {each.code for each in found} == {ResponseCode.SUCCESS}
            assert await beside.is_served()
        for each in clients:
            each.close()
        assert await beside.is_served()
        (await _served_at_last(broker)).close()

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * count + 500  # both ends are in this process
    if limits[1] < needed:
        pytest.skip(f"needs {needed} open files, the hard limit is {limits[1]}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(needed, limits[0]), limits[1]))
    try:
        run_at_a_broker(tmp_path, work, max_connections=count + 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_users_are_asked_for_signatures(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text("[[accounts]]\naccess_key = 'ann-key'\nsecret_key = 'ann-secret'\n")

    async def work(_broker: Broker, client: Client) -> None:
        assert (await client.send("orders")).code == ResponseCode.NO_PERMISSION

    run_at_a_broker(tmp_path, work, users=users)
