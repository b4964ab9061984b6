"""The gRPC port, in the event loop of the broker, and its calls about messages.

Plain text and TLS come on one port. A port of grpcio accepts only one of the two, and any number of
connections; RocketMQ's proxy accepts both. So the port is a proxy before two servers of grpcio: it
selects the server, and keeps the limits of all ports. Its end of a connection to a server has a
name, by which a call shows its client's connection.

The calls are routes, sends, and hand-outs. A route names this broker, which distributes the queues
itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import functools
import itertools
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import grpc
import grpc.aio

from lakelog import errors
from lakelog_broker import appending, codes, filtering, state
from lakelog_broker.broker import Broker
from lakelog_broker.grpc import mapping
from lakelog_broker.grpc.clients import MAX_BODY_BYTES, GrpcClients, client_id_of
from lakelog_broker.grpc.mapping import IllegalRequest, proto, status, status_of
from lakelog_broker.listener import CROWDED_S, Listener
from lakelog_broker.popping.handles import ReceiptHandle
from lakelog_broker.popping.service import Popping, PopRequest
from lakelog_broker.scheduled.recalls import RecallHandle
from lakelog_daemon.connection_limits import Admission
from lakelog_rocketmq.config import TopicConfig

_CHUNK_BYTES: Final = 64 << 10
_GRACE_S: Final = 0.2
_STOP_S: Final = 1.0
"""Calls of a flood may not end in time; the process then ends without them."""
_HELLO_S: Final = 0.5
"""Time for the handshakes of TLS and HTTP/2, and the first call."""
_MOST_STREAMS: Final = 200
"""Calls of one connection at a time."""
_VALID_DAYS: Final = 3650
_PERMISSIONS: Final = {2: 3, 4: 2, 6: 4}
"""Numbers of ``Permission`` by RocketMQ's permission bits."""
RENEWED_MS: Final = 60_000
"""Invisible time of a message with automatic renewal, in ms; the proxy's
``defaultInvisibleTimeMills``."""
RENEW_INTERVAL_S: Final = 5.0
_RENEW_LIMIT_S: Final = 3 * 3600
_MAX_INVISIBLE_MS: Final = 12 * 3_600_000
_MAX_BATCH: Final = 32
_POLLING_MS: Final = 20_000
_MARGIN_MS: Final = 500
"""Time between the answer and the deadline of the call."""
_SQL: Final = 2
_OUTCOMES: Final = {1: True, 2: False}


def key_and_certificate(
    certificate: Path | None, key: Path | None, host: str
) -> tuple[bytes, bytes]:
    """The private key and the certificate as PEM bytes; without files, a self-signed pair.

    :param host: name for the ``subjectAltName`` of a self-signed certificate

    Raises :class:`~lakelog.errors.SettingsError` for a file that cannot be read or if only one is
    given, and ``ImportError`` if ``cryptography`` is needed and missing.
    """
    if (certificate is None) != (key is None):
        raise errors.SettingsError("certificate and key must be given together")
    if certificate is None or key is None:
        return _self_made(host)
    try:
        return key.read_bytes(), certificate.read_bytes()
    except OSError as error:
        raise errors.SettingsError(f"the certificate cannot be read: {error}") from error


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


async def _copy(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    is_full: Callable[[bool], object],
) -> None:
    """Write what is read, no faster than the peer accepts it; close the peer at the end.

    :param is_full: called with true before each wait for the peer, and with false after it
    """
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            is_full(True)
            await writer.drain()
            is_full(False)
    writer.close()


class GrpcServer:
    """Serves ``apache.rocketmq.v2.MessagingService``, in plain text and with TLS on one port.

    :ivar port: the port, once it is bound
    :ivar renew: renews the hand-outs of living clients until the task is cancelled
    """

    def __init__(self, broker: Broker, popping: Popping) -> None:
        self.port = 0
        self._broker = broker
        self._clients = clients = GrpcClients(broker)
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
            "SyncLiteSubscription": clients.sync_lite,
        }
        self._folder = tempfile.TemporaryDirectory(prefix="lakelog-grpc-")
        self._grpc: Any = None
        self._listener = Listener(broker.limits, self._relay)
        self._places: dict[str, Admission] = {}  # by the name of the proxy's end, as calls show it
        self._numbers = itertools.count()

    async def start(self, port: int) -> None:
        """Bind the port and serve. Raises ``OSError`` and ``SettingsError``."""
        settings = self._broker.settings
        pair = key_and_certificate(settings.certificate, settings.key, settings.host)
        idle_ms = int(settings.idle_timeout_s * 1000)
        options = {
            "grpc.max_receive_message_length": 16 << 20,
            "grpc.max_concurrent_streams": _MOST_STREAMS,
            "grpc.max_connection_idle_ms": idle_ms,
            "grpc.keepalive_time_ms": idle_ms // 3,
            "grpc.keepalive_timeout_ms": idle_ms // 3,
        }
        self._grpc = grpc.aio.server(
            options=list(options.items()), maximum_concurrent_rpcs=settings.max_waiting_requests
        )
        handlers = {each.name: self._handler(each) for each in mapping.SERVICE.methods}
        generic = grpc.method_handlers_generic_handler(mapping.SERVICE.full_name, handlers)
        self._grpc.add_generic_rpc_handlers((generic,))
        plain, tls = self._paths
        self._grpc.add_insecure_port(f"unix:{plain}")
        self._grpc.add_secure_port(f"unix:{tls}", grpc.ssl_server_credentials([pair]))
        await self._grpc.start()
        self._listener.start(settings.host, port)
        self.port = self._messaging.port = self._listener.port

    async def close(self) -> None:
        """Close the port and all connections, and wait at most ``_STOP_S`` for calls."""
        await self._listener.stop()
        if self._grpc is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._grpc.stop(_GRACE_S), _STOP_S)
        await self._listener.close()
        self._folder.cleanup()

    @property
    def _paths(self) -> tuple[str, str]:
        """Of the Unix sockets of the plain server and of the TLS server."""
        return f"{self._folder.name}/plain", f"{self._folder.name}/tls"

    async def _relay(self, accepted: socket.socket, place: Admission, is_tls: bool) -> None:
        """Copy a client's connection to the plain server or the TLS server, and back."""
        limits, name = self._broker.limits, f"{self._folder.name}/{next(self._numbers)}"
        place.grace_s = _HELLO_S
        while not limits.take_descriptors(place, 2):
            await asyncio.sleep(CROWDED_S)

        def not_read(is_full: bool) -> None:
            limits.stall(place, is_full)

        def heard(_is_full: bool) -> None:
            place.is_heard = True

        writers: list[asyncio.StreamWriter] = []
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as end:
            end.setblocking(False)
            end.bind(f"\0{name}")
            self._places[f"unix-abstract:{name}"] = place
            try:
                await asyncio.get_running_loop().sock_connect(end, self._paths[is_tls])
                client, to_client = await asyncio.open_connection(sock=accepted)
                writers.append(to_client)
                server, to_server = await asyncio.open_unix_connection(sock=end)
                writers.append(to_server)
                await asyncio.gather(
                    _copy(client, to_server, heard), _copy(server, to_client, not_read)
                )
            finally:
                for each in writers:
                    each.transport.abort()
                del self._places[f"unix-abstract:{name}"]
                limits.leave(place)

    @contextlib.contextmanager
    def _waiting(self, context: Any) -> Iterator[None]:
        """Count a call in progress, whose connection is in use."""
        limits, place = self._broker.limits, self._places.get(context.peer())
        if place is not None:
            limits.wait(place, 1)
        try:
            yield
        finally:
            if place is not None:
                limits.wait(place, -1)

    def _check_waiting(self) -> None:
        """Raise :class:`IllegalRequest` if too many calls and requests wait."""
        limits, most = self._broker.limits, self._broker.settings.max_waiting_requests
        if limits.waiting >= most:
            text = "a gRPC call is refused: %d wait for messages (max_waiting_requests)"
            limits.lines.warning(text, most)
            raise IllegalRequest("TOO_MANY_REQUESTS", codes.BUSY)

    def _prove(self, context: Any) -> None:
        """Note that a client has sent a call with a right signature, if it needs one."""
        place = self._places.get(context.peer())
        if place is not None and not place.is_proven:
            self._broker.limits.prove(place)

    async def _telemetry(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        try:
            self._check_waiting()
            with self._waiting(context):
                async for command in self._clients.telemetry(requests, context):
                    if command.HasField("settings"):
                        self._prove(context)
                    yield command
        except IllegalRequest as error:
            yield proto("TelemetryCommand")(status=status_of(error))

    def _handler(self, method: Any) -> Any:
        """The handler of a method; an error is the status of its response, no error of gRPC."""
        name, response = method.name, proto(method.output_type.name)
        forms = proto(method.input_type.name).FromString, response.SerializeToString

        async def answer(request: Any, context: Any) -> Any:
            try:
                user = self._clients.user_of(context)
                self._prove(context)
                self._clients.check(name, request, context, user)
                with self._waiting(context):
                    return await self._calls.get(name, _not_served)(request, context)
            except Exception as error:  # noqa: BLE001  # any error is answered by its status
                return response(status=status_of(error))

        async def answers(request: Any, context: Any) -> AsyncIterator[Any]:
            try:
                user = self._clients.user_of(context)
                self._prove(context)
                self._clients.check(name, request, context, user)
                if name != "ReceiveMessage":
                    await _not_served(request, context)
                self._check_waiting()
                with self._waiting(context):
                    async for each in self._messaging.receive(request, context):
                        yield each
            except Exception as error:  # noqa: BLE001  # any error is answered by its status
                yield response(status=status_of(error))

        if name == "Telemetry":
            return grpc.stream_stream_rpc_method_handler(self._telemetry, *forms)
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(answers, *forms)
        return grpc.unary_unary_rpc_method_handler(answer, *forms)


async def _not_served(_request: Any, _context: Any) -> Any:
    """Refuse a call; RocketMQ's proxy 5.3.3 answers calls about offsets so, too."""
    raise IllegalRequest("NOT_IMPLEMENTED", "the call is not served")


@attrs.frozen
class Renewal:
    """A hand-out that is renewed while its client is a member of the group.

    :ivar until_s: end of the renewals, in seconds of ``time.monotonic``
    """

    client_id: str
    handle: ReceiptHandle
    until_s: float


class Messaging:
    """Puts messages of producers, and hands out messages to consumers.

    :ivar port: the gRPC port, set once it is bound
    """

    def __init__(self, broker: Broker, popping: Popping, clients: GrpcClients) -> None:
        self.port = 0
        self._broker, self._popping, self._clients = broker, popping, clients
        self._renewals: dict[tuple[str, str, str], Renewal] = {}  # by group, topic, handle
        clients.on_gone = self._client_gone

    # --- routes ---

    def _topic(self, name: str) -> TopicConfig:
        """Find a topic, or create it if a send would.

        Raises :class:`IllegalRequest` for an illegal name, and :class:`Refused` for an unknown one.
        """
        if not name:
            raise IllegalRequest("ILLEGAL_TOPIC", "the topic has no name")
        try:
            return self._broker.topics.created_by_sending(name)
        except codes.Invalid as error:
            raise IllegalRequest("ILLEGAL_TOPIC", error.remark) from None

    async def query_route(self, request: Any, _context: Any) -> Any:
        """Serve ``QueryRoute``: the queues of a topic; raises :class:`IllegalRequest`."""
        topic = self._topic(mapping.name_of(request.topic))
        found = [self._queue(request, topic, each) for each in range(topic.queue_count)]
        return proto("QueryRouteResponse")(status=status(), message_queues=found)

    async def query_assignment(self, request: Any, _context: Any) -> Any:
        """Serve ``QueryAssignment``: one assignment, to any queue of this broker.

        Raises :class:`IllegalRequest`.
        """
        topic = self._topic(mapping.name_of(request.topic))
        queue = self._queue(request, topic, -1)  # any queue
        one = proto("Assignment")(message_queue=queue)
        return proto("QueryAssignmentResponse")(status=status(), assignments=[one])

    def _queue(self, request: Any, topic: TopicConfig, queue_id: int) -> Any:
        address = proto("Address")(host=self._broker.settings.host, port=self.port)
        scheme = 2 if ":" in address.host else 1 if address.host.replace(".", "").isdigit() else 3
        endpoints = proto("Endpoints")(scheme=scheme, addresses=[address])
        broker = proto("Broker")(name=self._broker.settings.name, id=0, endpoints=endpoints)
        return proto("MessageQueue")(
            topic=request.topic,
            id=queue_id,
            permission=_PERMISSIONS.get(topic.permission & 6, 1),
            broker=broker,
            accept_message_types=mapping.accepted_types(topic),
        )

    # --- sends ---

    async def send(self, request: Any, _context: Any) -> Any:
        """Serve ``SendMessage``: put each message; the answer has one entry for each."""
        answer = proto("SendMessageResponse")()
        for each in request.messages:
            try:
                entry = await self._put(each)
            except Exception as error:  # noqa: BLE001  # the other messages are put
                entry = proto("SendResultEntry")(status=status_of(error))
            answer.entries.append(entry)
        answer.status.CopyFrom(mapping.common_status(each.status for each in answer.entries))
        return answer

    async def _put(self, sent: Any) -> Any:
        name = mapping.name_of(sent.topic)
        kind = sent.system_properties.message_type or mapping.NORMAL
        appending.refuse_system_topic(name)
        topic = self._topic(name)
        if not topic.permission & state.WRITABLE:
            raise codes.Forbidden(f"the topic {name} may not be written")
        if kind not in mapping.accepted_types(topic):
            kinds = topic.attributes.get("message.type")
            text = f"the topic {name} takes messages of the type {kinds}"
            raise IllegalRequest("MESSAGE_PROPERTY_CONFLICT_WITH_TYPE", text)
        if len(sent.body) > MAX_BODY_BYTES:
            text = f"a body of {len(sent.body)} bytes; at most {MAX_BODY_BYTES} are taken"
            raise IllegalRequest("MESSAGE_BODY_TOO_LARGE", text)
        message = mapping.stored_form(sent, topic.write_queues, self._broker.next_queue(topic))
        done = await appending.settled(self._broker.appender.append(message))
        entry = proto("SendResultEntry")(
            status=mapping.put_status(done.status),
            message_id=sent.system_properties.message_id,
            offset=done.queue_offset,
        )
        handle = RecallHandle.of(message.properties, self._broker.settings.name)
        if handle is not None and kind != mapping.TRANSACTION:
            entry.recall_handle = handle.encode()
        if kind == mapping.TRANSACTION:
            entry.transaction_id = mapping.transaction_id(done.physical_offset, done.queue_offset)
        return entry

    async def recall(self, request: Any, _context: Any) -> Any:
        """Serve ``RecallMessage``: recall a waiting timer message by its handle.

        Raises :class:`IllegalRequest` and :class:`~lakelog_broker.codes.Refused`.
        """
        topic, settings = mapping.name_of(request.topic), self._broker.settings
        if self._broker.topics.find(topic) is None:
            raise IllegalRequest("TOPIC_NOT_FOUND", f"there is no topic {topic}")
        handle = RecallHandle.parse(request.recall_handle)
        put = self._broker.appender.append_made(handle.message(topic, settings, topic, None))
        done = await appending.settled(put)
        found = mapping.put_status(done.status)
        return proto("RecallMessageResponse")(status=found, message_id=handle.message_id)

    async def end_transaction(self, request: Any, _context: Any) -> Any:
        """Serve ``EndTransaction``: commit or roll back the half message that the id names.

        Raises :class:`IllegalRequest`.
        """
        place, half = mapping.place_of(request.transaction_id)
        if not self._broker.transactions.end(place, half, _OUTCOMES.get(request.resolution)):
            text = f"there is no transaction {request.transaction_id}"
            raise IllegalRequest("INVALID_TRANSACTION_ID", text)
        return proto("EndTransactionResponse")(status=status())

    # --- hand-outs ---

    async def receive(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """Serve ``ReceiveMessage``: yield a status, the messages, and the time of delivery.

        Errors are yielded as a status.
        """
        response = proto("ReceiveMessageResponse")
        try:
            client_id = client_id_of(context)
            wanted = self._wanted(request, client_id)
            found = await self._popping.receive(wanted, _wait_ms(request, context) / 1000)
        except Exception as error:  # noqa: BLE001  # any error is answered by its status
            yield response(status=status_of(error))
            return
        if request.auto_renew:
            until_s = time.monotonic() + _RENEW_LIMIT_S
            for each in found:
                topic = wanted.topic if wanted.light_queues is None else each.message.topic
                key = wanted.group, topic, str(each.handle)
                self._renewals[key] = Renewal(client_id, each.handle, until_s)
        if found:
            yield response(status=status())
        else:
            yield response(status=status("MESSAGE_NOT_FOUND", "no new message"))
        for each in found:
            message = mapping.popped_form(
                each, request.message_queue.topic.name, wanted.invisible_ms
            )
            message.topic.CopyFrom(request.message_queue.topic)
            yield response(message=message)
        last = response()
        last.delivery_timestamp.FromMilliseconds(time.time_ns() // 1_000_000)
        yield last

    def _wanted(self, request: Any, client_id: str) -> PopRequest:
        group, name = mapping.name_of(request.group), mapping.name_of(request.message_queue.topic)
        if not group:
            raise IllegalRequest("ILLEGAL_CONSUMER_GROUP", "the group has no name")
        topic = self._topic(name)
        if not topic.permission & state.READABLE:
            raise codes.Forbidden(f"the topic {name} may not be read")
        invisible_ms = RENEWED_MS if request.auto_renew else _invisible_ms(request, 10)
        kind = "SQL92" if request.filter_expression.type == _SQL else "TAG"
        stream = self._clients.streams.get(client_id)
        light_queues = None
        if stream and stream.is_lite:
            lite = self._clients.lite
            lite.bind(group, name)
            light_queues = functools.partial(lite.light_queues, client_id, group, name)
        return PopRequest(
            group=group,
            topic=name,
            # As in the proxy: a client names some queue of a broker, and means all of them.
            queues=range(topic.read_queues),
            max_messages=max(1, min(request.batch_size, _MAX_BATCH)),
            invisible_ms=invisible_ms,
            selection=filtering.MessageFilter.of(request.filter_expression.expression, kind),
            is_ordered=bool(stream and (stream.is_ordered or stream.is_lite)),
            attempt_id=request.attempt_id,
            light_queues=light_queues,
        )

    async def acknowledge(self, request: Any, _context: Any) -> Any:
        """Serve ``AckMessage``; the answer has a status for each message."""
        answer = proto("AckMessageResponse")()
        for each in request.entries:
            try:
                hand_out = self._hand_out(request, each.receipt_handle, each.lite_topic)
                if not self._popping.acknowledge(*hand_out):
                    raise _outdated(each.receipt_handle)
                found = status()
            except IllegalRequest as error:
                found = status_of(error)
            answer.entries.add(
                message_id=each.message_id, receipt_handle=each.receipt_handle, status=found
            )
        answer.status.CopyFrom(mapping.common_status(each.status for each in answer.entries))
        return answer

    async def change_invisible(self, request: Any, _context: Any) -> Any:
        """Serve ``ChangeInvisibleDuration``: hand a message out again at another time.

        Raises :class:`IllegalRequest`.
        """
        # The Node client sends 0: it does not implement backoff policies with a list of delays.
        duration_ms = _invisible_ms(request, 0)
        hand_out = self._hand_out(request, request.receipt_handle, request.lite_topic)
        changed = self._popping.change(*hand_out, duration_ms)
        if changed is None:
            raise _outdated(request.receipt_handle)
        answer = proto("ChangeInvisibleDurationResponse")
        return answer(status=status(), receipt_handle=str(changed))

    async def dead_letter(self, request: Any, _context: Any) -> Any:
        """Serve ``ForwardMessageToDeadLetterQueue``: put a message into ``%DLQ%group``.

        Raises :class:`IllegalRequest`.
        """
        hand_out = self._hand_out(request, request.receipt_handle, request.lite_topic)
        if not self._popping.dead_letter(*hand_out):
            raise _outdated(request.receipt_handle)
        return proto("ForwardMessageToDeadLetterQueueResponse")(status=status())

    def _hand_out(self, request: Any, text: str, lite_topic: str) -> tuple[str, str, ReceiptHandle]:
        """Group, topic or light queue, and handle of a hand-out, which is renewed no longer."""
        group, topic = mapping.name_of(request.group), mapping.name_of(request.topic)
        if lite_topic:
            topic = mapping.lite_queue(topic, lite_topic)
        try:
            handle = ReceiptHandle.parse(text)
        except codes.Refused as error:
            raise IllegalRequest("INVALID_RECEIPT_HANDLE", error.remark) from None
        self._renewals.pop((group, topic, text), None)
        return group, topic, handle

    async def renew(self) -> None:
        """Renew the hand-outs of living clients until the task is cancelled.

        A connection may outlive its client's machine by hours. So, as in the proxy, messages of a
        client without heartbeats become visible once it is no member of its group any more.
        """
        while True:
            await asyncio.sleep(RENEW_INTERVAL_S)
            now_s = time.monotonic()
            for key, each in list(self._renewals.items()):
                if each.client_id not in self._broker.members.group(key[0]).members:
                    self._make_visible(key)
                elif now_s > each.until_s or not self._popping.extend(
                    *key[:2], each.handle, RENEWED_MS
                ):
                    self._renewals.pop(key, None)

    def _client_gone(self, client_id: str) -> None:
        """Make the renewed messages of a client visible at once."""
        for key, each in list(self._renewals.items()):
            if each.client_id == client_id:
                self._make_visible(key)

    def _make_visible(self, key: tuple[str, str, str]) -> None:
        self._popping.change(*key[:2], self._renewals.pop(key).handle, 0)


def _outdated(text: str) -> IllegalRequest:
    return IllegalRequest("INVALID_RECEIPT_HANDLE", f"the hand-out {text} is over or not known")


def _invisible_ms(request: Any, least_s: int) -> int:
    found = mapping.milliseconds(request.invisible_duration)
    if not least_s * 1000 <= found <= _MAX_INVISIBLE_MS:
        least = f"{least_s} s" if least_s else "0"
        text = f"an invisible duration of {found} ms is not between {least} and 12 h"
        raise IllegalRequest("ILLEGAL_INVISIBLE_TIME", text)
    return found


def _wait_ms(request: Any, context: Any) -> int:
    is_given = request.HasField("long_polling_timeout")
    wanted = mapping.milliseconds(request.long_polling_timeout) if is_given else _POLLING_MS
    left_s = context.time_remaining()
    if left_s is not None:
        wanted = min(wanted, int(left_s * 1000) - _MARGIN_MS)
    return max(0, wanted)
