"""TLS on the same port, the number of connections, users, and peers that send nonsense."""

from __future__ import annotations

import asyncio
import resource
import shutil
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from lakelog.errors import SettingsError
from lakelog_broker.broker import Broker
from lakelog_broker.codes import RequestCode, ResponseCode
from lakelog_broker.remoting.frame import MAX_FRAME_BYTES, RemotingCommand, encode_frame
from lakelog_broker.remoting.listener import tls_context
from lakelog_broker.settings import BrokerSettings
from plugins.broker.tests.support import Client, served

_TLS_HELLO = bytes.fromhex("1603010200010001fc0303")
"""The beginning of a handshake, without its rest."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    folder = tmp_path_factory.mktemp("tls")
    paths = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=tests", "-addext"),
            *("subjectAltName=IP:127.0.0.1", "-out", paths[0], "-keyout", paths[1]),
        ],
        check=True,
        capture_output=True,
    )
    return paths


def _client_context(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate))


async def _is_served(client: Client) -> None:
    assert (await client.send("orders")).code == ResponseCode.SUCCESS


def test_tls_and_plain_share_a_port(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    """Permissive: both kinds are served, large frames too."""
    pem, key = certificate

    async def main() -> None:
        async with served(tmp_path, tls="permissive", certificate=pem, key=key) as broker:
            plain, secure = await Client.to(broker), await Client.to(broker, _client_context(pem))
            await _is_served(plain)
            for body in (b"x", b"y" * 500_000):
                assert (await secure.send("orders", body)).code == ResponseCode.SUCCESS
            assert secure.writer.get_extra_info("ssl_object").version() in ("TLSv1.2", "TLSv1.3")
            plain.close()
            secure.close()

    asyncio.run(main())


def test_tls_can_be_required(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    """A plain client is disconnected, and one with TLS is served."""
    pem, key = certificate

    async def main() -> None:
        async with served(tmp_path, tls="required", certificate=pem, key=key) as broker:
            plain = await Client.to(broker)
            plain.writer.write(encode_frame(RemotingCommand(RequestCode.GET_MAX_OFFSET)))
            assert await plain.ended()
            secure = await Client.to(broker, _client_context(pem))
            await _is_served(secure)
            secure.close()

    asyncio.run(main())


def test_half_open_connections_end(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    """No byte, half a handshake: both are closed, and a client beside them is served."""
    pem, key = certificate

    async def main() -> None:
        settings = {"tls": "permissive", "certificate": pem, "key": key}
        async with served(tmp_path, first_byte_timeout_s=0.3, **settings) as broker:
            silent, half = await Client.to(broker), await Client.to(broker)
            half.writer.write(_TLS_HELLO)
            good = await Client.to(broker)
            await _is_served(good)
            assert await silent.ended()
            assert await half.ended()
            await _is_served(good)
            good.close()

    asyncio.run(main())


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


def test_connections_are_limited(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One more is closed; after one ends, a new one is served."""

    async def main() -> None:
        async with served(tmp_path, max_connections=3) as broker:
            clients = [await Client.to(broker) for _ in range(3)]
            for each in clients:
                await _is_served(each)
            for _ in range(2):
                assert await (await Client.to(broker)).ended()
            clients.pop().close()
            again = await _served_at_last(broker)
            clients.append(again)
            for each in clients:
                await _is_served(each)
                each.close()

    asyncio.run(main())
    assert sum("max_connections" in each.message for each in caplog.records) >= 1


async def _served_at_last(broker: Broker) -> Client:
    """A client that is served once the broker has noted the end of another."""
    while True:
        client = await Client.to(broker)
        try:
            await _is_served(client)
        except (asyncio.IncompleteReadError, ConnectionError):
            client.close()
            await asyncio.sleep(0.01)
        else:
            return client


def _number(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)


@pytest.mark.parametrize(
    "data",
    [
        _number(-1),
        _number(0),
        _number(3),
        _number(MAX_FRAME_BYTES + 1),
        _number(2**31 - 1),
        _number(8) + _number(2**24 - 1) + b"{}{}",
        _number(8) + b"\x07\x00\x00\x00" + b"{}{}",
        _number(4 + 200_000) + _number(200_000) + b"[" * 200_000,
        _number(6) + _number(2) + b"[]",
        _number(4) + _number(0),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_nonsense_ends_its_connection_only(tmp_path: Path, data: bytes) -> None:
    """Lengths that are negative or too great, forms that do not exist, JSON too deep."""

    async def main() -> None:
        async with served(tmp_path) as broker:
            good, bad = await Client.to(broker), await Client.to(broker)
            await _is_served(good)
            bad.writer.write(data)
            assert await bad.ended()
            await _is_served(good)
            good.close()

    asyncio.run(main())


def test_torn_frames_and_slow_writers(tmp_path: Path) -> None:
    """A frame that ends at any byte has no effect; one that comes byte by byte is served."""
    request = RemotingCommand(310, 1, 0, {"a": "g", "b": "slow", "e": "0", "g": "1", "c": "TBW102"})
    frame = encode_frame(request)

    async def main() -> None:
        async with served(tmp_path) as broker:
            good = await Client.to(broker)
            for end in range(len(frame)):
                torn = await Client.to(broker)
                torn.writer.write(frame[:end])
                await torn.writer.drain()
                torn.close()
            slow = await Client.to(broker)
            for byte in frame:
                slow.writer.write(bytes([byte]))
                await slow.writer.drain()
                await _is_served(good)
            assert (await slow.receive()).fields["queueOffset"] == "0"
            slow.close()
            good.close()

    asyncio.run(main())


async def _of_each_code(client: Client) -> None:
    for code in (*RequestCode, -32768, 0, 9999, 32767):
        for body in (b"", b"{}", b"[1]", b'{"mqSet":3,"clientID":[]}', b"[" * 50_000):
            found = await client.call(code, body, offset="-9" * 30, topic="\x00", queueId="x")
            assert found.is_response


def test_every_code_without_its_fields(tmp_path: Path) -> None:
    """Each is answered, and the connection stays."""
    _with_client(tmp_path, _of_each_code)


async def _many(client: Client) -> None:
    for number in range(50):
        await client.call(RequestCode.HEART_BEAT, b'{"clientID":"c%d"}' % number)
    await _is_served(client)


def test_heartbeats_without_groups(tmp_path: Path) -> None:
    """They register nothing."""
    _with_client(tmp_path, _many)


def _with_client(folder: Path, work: Callable[[Client], Awaitable[None]]) -> None:
    async def main() -> None:
        async with served(folder) as broker:
            client = await Client.to(broker)
            await work(client)
            client.close()

    asyncio.run(main())


@pytest.mark.parametrize("count", [500, pytest.param(5000, marks=pytest.mark.slow)])
def test_many_connections(tmp_path: Path, count: int) -> None:
    """Each is served, and so is one beside them; none is left in the broker's tables."""

    async def main() -> None:
        async with served(tmp_path, max_connections=count + 1) as broker:
            beside = await Client.to(broker)
            clients = [await Client.to(broker) for _ in range(count)]
            for start in range(0, count, 100):
                few = clients[start : start + 100]
                found = await asyncio.gather(*(each.send("orders") for each in few))
                assert {each.code for each in found} == {ResponseCode.SUCCESS}
                await _is_served(beside)
            for each in clients:
                each.close()
            await _is_served(beside)
            (await _served_at_last(broker)).close()
            beside.close()

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * count + 500  # both ends are in this process
    if limits[1] < needed:
        pytest.skip(f"needs {needed} open files, the hard limit is {limits[1]}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(needed, limits[0]), limits[1]))
    try:
        asyncio.run(main())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_users_are_asked_for_signatures(tmp_path: Path) -> None:
    """An unsigned request is refused with NO_PERMISSION."""
    users = tmp_path / "users.toml"
    users.write_text("[[accounts]]\naccess_key = 'ann-key'\nsecret_key = 'ann-secret'\n")

    async def main() -> None:
        async with served(tmp_path, users=users) as broker:
            client = await Client.to(broker)
            assert (await client.send("orders")).code == ResponseCode.NO_PERMISSION
            client.close()

    asyncio.run(main())
