"""The gRPC port, in the event loop of the broker: plain text and TLS on one port.

A port of grpcio accepts only one of the two; RocketMQ's proxy accepts both. So the port is a proxy
that selects the server by a connection's first byte. A TLS connection begins with a handshake
record, type 0x16. HTTP/2 in plain text begins with ``PRI``.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import functools
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from lakelog.errors import SettingsError
from lakelog_broker.broker import Broker
from lakelog_broker.grpc.clients import GrpcAccess, GrpcClients
from lakelog_broker.grpc.mapping import SERVICE, IllegalRequest, class_of, status_of
from lakelog_broker.grpc.messaging import Messaging
from lakelog_broker.popping.service import Popping

_VALID_DAYS: Final = 3650


def key_and_certificate(
    certificate: Path | None, key: Path | None, host: str
) -> tuple[bytes, bytes]:
    """The private key and the certificate as PEM bytes; without files, a self-signed pair.

    :param host: name for the ``subjectAltName`` of a self-signed certificate

    Raises :class:`~lakelog.errors.SettingsError` for a file that cannot be read or if only one is
    given, and ``ImportError`` if ``cryptography`` is needed and missing.
    """
    if (certificate is None) != (key is None):
        raise SettingsError("certificate and key must be given together")
    if certificate is None or key is None:
        return _self_made(host)
    try:
        return key.read_bytes(), certificate.read_bytes()
    except OSError as error:
        raise SettingsError(f"the certificate cannot be read: {error}") from error


def _self_made(host: str) -> tuple[bytes, bytes]:
    """Make a self-signed certificate, as RocketMQ's proxy does; its clients accept any."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lakelog")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=_VALID_DAYS))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.DNSName(host)]), False
        )
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private, made.public_bytes(pem)


_HANDSHAKE: Final = 0x16


_CHUNK_BYTES: Final = 64 << 10


async def _serve(
    plain: str, tls: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Copy a client's connection to the Unix socket of the plain server or the TLS server.

    :param plain: path of the plain server's socket
    :param tls: path of the TLS server's socket
    """
    with contextlib.suppress(OSError):
        first = await reader.read(_CHUNK_BYTES)
        if first:
            path = tls if first[0] == _HANDSHAKE else plain
            peer, to_peer = await asyncio.open_unix_connection(path)
            to_peer.write(first)
            await asyncio.gather(_copy(reader, to_peer), _copy(peer, writer))
    writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Write what is read, no faster than the peer accepts it; close the peer at the end."""
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()


_GRACE_S: Final = 0.2


class GrpcServer:
    """Serves ``apache.rocketmq.v2.MessagingService``, in plain text and with TLS on one port.

    :ivar port: the port, once it is bound
    :ivar renew: renews the hand-outs of living clients until the task is cancelled
    """

    def __init__(self, broker: Broker, popping: Popping) -> None:
        self.port = 0
        self._broker = broker
        self._access = GrpcAccess(broker)
        self._clients = clients = GrpcClients(broker, self._access)
        self._messaging = messaging = Messaging(broker, popping, clients)
        self.renew = messaging.renew
        self._calls: dict[str, Callable[[Any, Any], Awaitable[Any]]] = {
            "QueryRoute": messaging.query_route,
            "QueryAssignment": messaging.query_assignment,
            "Heartbeat": clients.heartbeat,
            "NotifyClientTermination": clients.terminated,
            "SendMessage": messaging.send,
            "EndTransaction": messaging.end_transaction,
            "RecallMessage": messaging.recall,
            "AckMessage": messaging.acknowledge,
            "ChangeInvisibleDuration": messaging.change_invisible,
            "ForwardMessageToDeadLetterQueue": messaging.dead_letter,
        }
        self._folder = tempfile.TemporaryDirectory(prefix="lakelog-grpc-")
        self._grpc: Any = None
        self._server: asyncio.Server | None = None

    async def start(self, port: int) -> None:
        """Bind the port and serve. Raises ``OSError`` and ``SettingsError``."""
        settings = self._broker.settings
        pair = key_and_certificate(settings.certificate, settings.key, settings.host)
        self._grpc = grpc.aio.server(options=[("grpc.max_receive_message_length", 16 << 20)])
        handlers = {each.name: self._handler(each) for each in SERVICE.methods}
        generic = grpc.method_handlers_generic_handler(SERVICE.full_name, handlers)
        self._grpc.add_generic_rpc_handlers((generic,))
        plain, tls = (f"{self._folder.name}/{name}" for name in ("plain", "tls"))
        self._grpc.add_insecure_port(f"unix:{plain}")
        self._grpc.add_secure_port(f"unix:{tls}", grpc.ssl_server_credentials([pair]))
        await self._grpc.start()
        self._server = await asyncio.start_server(
            functools.partial(_serve, plain, tls), settings.host, port, backlog=1024
        )
        self.port = self._messaging.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Close the port and all connections."""
        if self._server is not None:
            self._server.close()
        if self._grpc is not None:
            await self._grpc.stop(_GRACE_S)
        self._folder.cleanup()

    def _handler(self, method: Any) -> Any:
        """The handler of a method; an error is the status of its response, no error of gRPC."""
        name, response = method.name, class_of(method.output_type)
        forms = class_of(method.input_type).FromString, response.SerializeToString

        async def answer(request: Any, context: Any) -> Any:
            try:
                self._access.check(name, request, context)
                return await self._calls.get(name, _not_served)(request, context)
            except Exception as error:  # noqa: BLE001  # a status
                return response(status=status_of(error))

        async def answers(request: Any, context: Any) -> AsyncIterator[Any]:
            try:
                if name != "ReceiveMessage":
                    await _not_served(request, context)
                self._access.check(name, request, context)
            except Exception as error:  # noqa: BLE001  # a status
                yield response(status=status_of(error))
                return
            async for each in self._messaging.receive(request, context):
                yield each

        if name == "Telemetry":
            return grpc.stream_stream_rpc_method_handler(self._clients.telemetry, *forms)
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(answers, *forms)
        return grpc.unary_unary_rpc_method_handler(answer, *forms)


async def _not_served(_request: Any, _context: Any) -> Any:
    """Refuse a call; RocketMQ's proxy 5.3.3 answers calls about offsets so, too."""
    raise IllegalRequest("NOT_IMPLEMENTED", "the call is not served")
