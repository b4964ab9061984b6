"""The remoting port: name server and broker on one port, as their request codes are distinct.

A connection reads frames, serves their requests by the table of :mod:`.requests`, and writes the
responses. Reading pauses while a client reads no responses, or sends faster than messages are put.
:mod:`lakelog_broker.listener` accepts connections, within the limits of all ports.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from lakelog import StoredMessage, errors
from lakelog.format.encoder import Encoder, Limits, RoundRobin
from lakelog.format.queue_offsets import QueueOffsets
from lakelog.runtime.forks import register_forked
from lakelog_broker import appending, security, state
from lakelog_broker.broker import Broker
from lakelog_broker.codes import BUSY, LimitExceeded, Refused, ResponseCode, check_limit
from lakelog_broker.listener import Listener, detach
from lakelog_broker.remoting.frame import (
    MAX_FRAME_BYTES,
    ONE_WAY_FLAG,
    BadFrame,
    RemotingCommand,
    decode_frame,
    encode_frame,
)
from lakelog_broker.remoting.requests import REQUESTS, RequestCode, check_rights
from lakelog_broker.settings import BrokerSettings
from lakelog_daemon.connection_limits import Admission
from lakelog_queues.delays.delivering import restored
from lakelog_queues.units.properties import property_value

if TYPE_CHECKING:
    from lakelog_broker.popping.service import Popping

_LOG: Final = logging.getLogger("lakelog.broker")

MAX_UNANSWERED_BYTES: Final = 8 << 20
"""A connection is not read while its unanswered requests have more bytes than this."""
MAX_UNSENT_BYTES: Final = 4 << 20
"""A connection is not read while its unsent responses have more bytes than this."""
_WRITE_BYTES: Final = 256 << 10
_TURN_S: Final = 0.002
"""Requests of a connection are served for so long, and then those of others."""
_SHORT_TURN_S: Final = 0.0005
"""The same while other connections wait for their turn."""
_LOOK_FRAMES: Final = 2
"""Requests between two looks at the clock."""
_HEADER_BYTES: Final = 512
"""Bytes that are counted for the header of an unanswered request."""
CALL_TIMEOUT_S: Final = 10.0
"""Timeout for the response of a client; as RocketMQ's ``Broker2Client.callClient``."""
_READ_BYTES: Final = 1 << 18
"""Most bytes of one read of a connection, as asyncio reads without a buffer."""
MAX_FIELDS: Final = 256
"""Most fields of a header; RocketMQ's clients send about 20."""

_LARGE_BYTES: Final = 64 << 10
"""Unfinished requests of fewer bytes are not counted as held."""
_WAITING: Final = frozenset(
    {
        *(RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE),
        *(RequestCode.POP_MESSAGE, RequestCode.NOTIFICATION),
    }
)
"""Requests that wait for messages; refused while too many wait."""

Response: TypeAlias = RemotingCommand | Awaitable[RemotingCommand]
"""An awaitable may end after later requests."""

Handler: TypeAlias = Callable[["Connection", RemotingCommand], Response | dict[str, Any] | None]
"""Serves a request. A dictionary is the JSON body of the response, ``None`` is plain success."""


class RemotingServer:
    """Accepts connections, and has what their requests use.

    :ivar access: checks the users of requests
    :ivar buffer: what a connection has just read; see :meth:`Connection.get_buffer`
    :ivar connections: the open connections
    :ivar opaques: numbers of requests to clients
    :ivar modes: whether groups pull or pop
    :ivar turns: the connections whose further requests wait for their next turn
    :ivar names: the key-value pairs of the name server, by namespace; in memory only
    :ivar popping: returns the hand-outs of pops
    :ivar plain_send: serves a frame of a common send by a fast path, by the client's address; see
        :meth:`lakelog_broker.remoting.sending.PlainSends.answer`
    """

    def __init__(
        self,
        broker: Broker,
        popping: Callable[[], Popping],
        plain_send: Callable[[str, bytes], bytes | None],
    ) -> None:
        """Prepare.

        Raises :class:`~lakelog.errors.CorruptConfig` and :class:`~lakelog.errors.SettingsError`.
        """
        self.broker, self.popping, self.plain_send = broker, popping, plain_send
        self.modes = state.RequestModes(broker.files, broker.path)
        self.names: dict[str, dict[str, str]] = {}
        self.connections: set[Connection] = set()
        self.turns = deque[Connection]()
        self._has_turns = False
        self.opaques = itertools.count(1)
        self.buffer = memoryview(bytearray(_READ_BYTES))
        self._handlers: dict[int, Handler] = {}
        self.access = security.AccessControl.of(broker.settings)
        self._tls = tls_context(broker.settings)
        self._listener = Listener(broker.limits, self._begin, busy_answer)
        broker.members.on_change = self._members_changed
        register_forked(self)

    async def start(self) -> int:
        """Bind the port and serve; return the port. Raises ``OSError``."""
        settings = self.broker.settings
        self._listener.start(settings.host, settings.port)
        port = self._listener.port
        # Stored messages have the address of the remoting port as their store host.
        self.broker.address = f"{settings.host}:{port}"
        self.broker.appender.store_host = self.broker.address
        return port

    async def close(self) -> None:
        """Close the port and all connections; unsent responses are dropped."""
        await self._listener.close()
        for connection in list(self.connections):
            connection.end()
        await asyncio.sleep(0)

    def forked(self) -> None:
        """Detach the sockets in a forked child, which does not serve them."""
        detach(each.fileno() for each in self.connections)

    def handler(self, code: int) -> Handler:
        """The handler of a request code; its module is imported by the first such request."""
        found = self._handlers.get(code)
        if found is None:
            if code not in REQUESTS:
                return _unsupported
            module, _, name = REQUESTS[code].handler.partition(":")
            found = getattr(import_module(f"{__package__}.{module}"), name)
            self._handlers[code] = found
        return found

    def wait_for_turn(self, connection: Connection) -> None:
        """Let others be served before the further requests of a connection."""
        self.turns.append(connection)
        if not self._has_turns:
            self._has_turns = True
            asyncio.get_running_loop().call_soon(self._take_turns)

    def _take_turns(self) -> None:
        end_s = time.monotonic() + _TURN_S
        while self.turns:
            self.turns.popleft().resume()
            if time.monotonic() >= end_s:
                break
        self._has_turns = bool(self.turns)
        if self._has_turns:
            asyncio.get_running_loop().call_soon(self._take_turns)

    def _members_changed(self, name: str) -> None:
        for member in list(self.broker.members.group(name).members.values()):
            if isinstance(member.peer, Connection):
                member.peer.notify(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": name})

    async def _begin(self, accepted: socket.socket, place: Admission, is_tls: bool) -> None:
        """Start the protocol of a connection."""
        settings, tls = self.broker.settings, self._tls if is_tls else None
        if tls is None and settings.tls == "required":
            text = "%s is disconnected, as it does not use TLS"
            self.broker.limits.lines.warning(text, place.address)
            raise ConnectionError("no TLS")
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: Connection(self, place),
            accepted,
            ssl=tls,
            ssl_handshake_timeout=settings.first_byte_timeout_s if tls else None,
        )


class Connection(asyncio.BufferedProtocol, state.Peer):
    """A client's connection.

    Memory is bounded by ``MAX_UNANSWERED_BYTES``, ``MAX_UNSENT_BYTES``, one frame, and one
    response.

    :ivar groups: kind (``consumers`` or ``producers``) and name of each of the client's groups
    :ivar user: the user of the request that is served now
    """

    def __init__(self, server: RemotingServer, place: Admission) -> None:
        self.server, self.broker = server, server.broker
        self._place, self._limits = place, server.broker.limits
        self.groups: set[tuple[str, str | None]] = set()
        self.user = security.ANONYMOUS
        self._received: bytes | bytearray = b""
        self._needed_bytes = 0
        self._responses: list[bytes] = []
        self._response_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._tasks: dict[asyncio.Task[None], RemotingCommand] = {}
        self._calls: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._unanswered_bytes = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self._is_reading = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the client's address."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=MAX_UNSENT_BYTES)
        host, port = transport.get_extra_info("peername")[:2]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.server.connections.add(self)
        self._place.end = self.abort

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # declared by asyncio.BufferedProtocol
        """Cancel the waiting requests, except sends, which are completed."""
        self._writable.set()
        for task, request in self._tasks.items():
            if not REQUESTS[request.code].completes:
                task.cancel()
        for call in self._calls.values():
            if not call.done():
                call.set_exception(ConnectionError("the client has left"))
        self.server.connections.discard(self)
        self._limits.leave(self._place)
        self.broker.members.disconnected(self)

    def fileno(self) -> int:
        """The socket's descriptor; -1 if it is closed."""
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        return -1 if sock is None else int(sock.fileno())

    def close(self) -> None:
        """Close the connection after the responses that were written."""
        if self._transport is not None:
            self._transport.close()

    def end(self) -> None:
        """Close the connection; drop the responses that the client does not read."""
        if self._writable.is_set():
            self.close()
        else:
            self.abort()

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def pause_writing(self) -> None:
        """Stop serving requests: the client does not read its responses."""
        self._writable.clear()
        self._limits.stall(self._place, True)
        self._hold()

    def resume_writing(self) -> None:
        """Continue to serve requests after :meth:`pause_writing`."""
        self._writable.set()
        self._limits.stall(self._place, False)
        self._hold()
        self.resume()

    def _hold(self) -> None:
        """Count the bytes that are in memory for this client."""
        unsent = 0
        if self._transport is not None and not self._writable.is_set():
            unsent = self._transport.get_write_buffer_size()
        held = len(self._received) + self._unanswered_bytes + unsent
        self._limits.hold(self._place, held)

    async def writable(self) -> None:
        """Wait while the client does not read its responses."""
        while not self._writable.is_set():
            await self._writable.wait()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # declared by asyncio.BufferedProtocol
        """The buffer of all connections: no other one reads before :meth:`buffer_updated`."""
        return self.server.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Serve all complete frames; write their responses together."""
        self._place.is_heard = True
        data = bytes(self.server.buffer[:nbytes])
        if not self._received:
            self._received = data
        else:
            self._received += data
            if len(self._received) < self._needed_bytes:
                self._hold()
                return  # _serve_received would copy the parts of a large frame each time
        self._serve_received()

    def _is_busy(self) -> bool:
        return self._unanswered_bytes > MAX_UNANSWERED_BYTES or not self._writable.is_set()

    def resume(self) -> None:
        """Serve the frames received while the connection was busy, then resume reading."""
        if self._is_reading or self._transport is None or self._transport.is_closing():
            return
        if not self._is_busy():
            self._is_reading = True
            self._serve_received()
        if self._is_reading and not self._transport.is_closing():
            self._transport.resume_reading()

    def _serve_received(self) -> None:
        received, start = bytes(self._received), 0
        length, self._needed_bytes = len(received), 0
        end_s = time.monotonic() + (_SHORT_TURN_S if self.server.turns else _TURN_S)
        served, is_over = 0, False
        try:
            while length - start >= 4 and not (is_over or self._is_busy()):
                size = int.from_bytes(received[start : start + 4], "big")
                if not 4 <= size <= MAX_FRAME_BYTES:
                    raise BadFrame(f"a frame of {size} bytes")
                end = start + 4 + size
                if end > length:
                    self._needed_bytes = 4 + size
                    break
                frame = received[start + 4 : end]
                answer = self.server.plain_send(self.address, frame)
                if answer is None:
                    self._serve(decode_frame(frame))
                else:
                    if not self._place.is_proven:
                        self._limits.prove(self._place)
                    if answer:
                        self._respond(answer)
                start = end
                served += 1
                is_over = not served % _LOOK_FRAMES and time.monotonic() >= end_s
        except BadFrame as error:
            text = "%s is disconnected, as it does not send frames: %s"
            self._limits.lines.warning(text, self.address, error)
            self.close()
            return
        self._received = bytearray(received[start:]) if start < length else b""
        if length - start > _LARGE_BYTES or self._place.held_bytes:
            self._hold()
        self._write_responses()
        if is_over or self._is_busy():
            self._pause(is_over)

    def _pause(self, is_over: bool) -> None:
        """Stop reading, until the client's turn comes again if it is over, or it reads."""
        if self._is_reading and self._transport is not None:
            self._is_reading = False
            self._transport.pause_reading()
            if is_over:
                self.server.wait_for_turn(self)

    def _write_responses(self) -> None:
        if self._responses:
            self._write(b"".join(self._responses))
            self._responses.clear()
            self._response_bytes = 0

    def _serve(self, request: RemotingCommand) -> None:
        if request.is_response:
            call = self._calls.get(request.opaque)
            if call is not None and not call.done():  # notifications are answered, too
                call.set_result(request)
            return
        try:
            handler = self.server.handler(request.code)
            check_limit(len(request.fields), MAX_FIELDS, "a header of {} fields")
            self.user = self.server.access.remoting_user(request)
            if not self._place.is_proven:
                self._limits.prove(self._place)
            check_rights(self.broker, self.user, request)
            if request.code in _WAITING:
                self._check_waiting()
            answer = handler(self, request)
            if answer is None or isinstance(answer, dict):
                answer = request.response() if answer is None else request.json(answer)
        except Exception as error:  # noqa: BLE001  # a request must not end the connection
            if isinstance(error, LimitExceeded):
                text = "%s: request %d is refused: %s"
                self._limits.lines.warning(text, self.address, request.code, error)
            answer = failed(request, error)
        if isinstance(answer, RemotingCommand):
            if not request.is_one_way:
                self._respond(encode_frame(answer))
            return
        task = asyncio.ensure_future(self._serve_later(request, answer))
        self._tasks[task] = request
        self._unanswered_bytes += len(request.body) + _HEADER_BYTES
        self._limits.wait(self._place, 1)
        task.add_done_callback(self._answered)

    def _check_waiting(self) -> None:
        """Raise :class:`Refused` if too many requests of all clients wait."""
        most = self.broker.settings.max_waiting_requests
        if self._limits.waiting >= most:
            text = "%s: a request is refused: %d wait for messages (max_waiting_requests)"
            self._limits.lines.warning(text, self.address, most)
            raise Refused(BUSY, ResponseCode.SYSTEM_BUSY)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._limits.wait(self._place, -1)
        self._unanswered_bytes -= len(self._tasks.pop(task).body) + _HEADER_BYTES
        self.resume()

    async def _serve_later(
        self, request: RemotingCommand, answer: Awaitable[RemotingCommand]
    ) -> None:
        try:
            found = await answer
        except Exception as error:  # noqa: BLE001  # it must not end the connection
            found = failed(request, error)
        if not request.is_one_way:
            self._write(encode_frame(found))

    def _respond(self, frame: bytes) -> None:
        """Queue a response; all responses to frames that came together are written together."""
        self._responses.append(frame)
        self._response_bytes += len(frame)
        if self._response_bytes > _WRITE_BYTES:
            self._write_responses()

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def notify(self, code: RequestCode, fields: dict[str, str], body: bytes = b"") -> None:
        """Send a one-way request to the client."""
        opaque = next(self.server.opaques)
        self._write(encode_frame(RemotingCommand(code, opaque, ONE_WAY_FLAG, fields, body)))

    async def call(
        self, code: RequestCode, fields: dict[str, str], body: bytes = b""
    ) -> RemotingCommand:
        """Send a request to the client, and return its response.

        Raises ``TimeoutError`` after ``CALL_TIMEOUT_S``, and ``ConnectionError`` if it disconnects.
        """
        opaque = next(self.server.opaques)
        call: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        self._calls[opaque] = call
        try:
            self._write(encode_frame(RemotingCommand(code, opaque, 0, fields, body)))
            async with asyncio.timeout(CALL_TIMEOUT_S):
                return await call
        finally:
            del self._calls[opaque]

    def check_transaction(self, half: StoredMessage) -> None:
        """Ask the client for the outcome of a transaction."""
        key = (property_value(half.properties_bytes, b"UNIQ_KEY") or b"").decode()
        fields = {
            "commitLogOffset": str(half.physical_offset),
            "tranStateTableOffset": str(half.queue_offset),
            "msgId": key,
            "transactionId": key,
            "offsetMsgId": half.message_id,
        }
        self.notify(RequestCode.CHECK_TRANSACTION_STATE, fields, record_with_own_topic(half))


_ENCODER: Final = Encoder(
    Limits(MAX_FRAME_BYTES, MAX_FRAME_BYTES), "127.0.0.1:0", False, None, RoundRobin(1)
)


def record_with_own_topic(stored: StoredMessage) -> bytes:
    """Encode a message that was set aside with its own topic and queue id, at its stored offsets.

    All properties are kept. Raises ``ValueError`` if the message has no own topic.
    """
    message = attrs.evolve(
        restored(stored),
        properties=stored.properties_bytes,
        store_host=stored.store_host,
        prepared_transaction_offset=stored.prepared_transaction_offset,
    )
    record = _ENCODER.encode_one(message)
    offsets = QueueOffsets({record.queue: stored.queue_offset})
    record.place(stored.physical_offset, 2 * MAX_FRAME_BYTES, offsets, stored.store_timestamp_ms)
    return bytes(record.buffer)


def _unsupported(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    text = "%s sent request code %d, which is not served"
    connection.broker.limits.lines.warning(text, connection.address, request.code)
    remark = f"request type {request.code} not supported"
    raise Refused(remark, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)


def failed(request: RemotingCommand, error: Exception) -> RemotingCommand:
    """The response to a request that raised ``error``."""
    if isinstance(error, Refused):
        return request.response(error.code, error.remark)
    if isinstance(error, errors.PutRefused):
        refused = error.status in appending.ILLEGAL_PUTS
        code = ResponseCode.MESSAGE_ILLEGAL if refused else ResponseCode.SERVICE_NOT_AVAILABLE
        return request.response(code, str(error))
    if isinstance(error, KeyError):
        return request.response(ResponseCode.SYSTEM_ERROR, f"the field {error} is missing")
    level = logging.WARNING if isinstance(error, errors.StoreError | ValueError) else logging.ERROR
    _LOG.log(level, "request code %d failed", request.code, exc_info=error)
    return request.response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")


def busy_answer(received: bytes) -> bytes:
    """The refusal of a connection, if its first request has come whole; else nothing."""
    try:
        request = decode_frame(received[4 : 4 + int.from_bytes(received[:4], "big")])
    except BadFrame:
        return b""
    return encode_frame(request.response(ResponseCode.SYSTEM_BUSY, BUSY))


def tls_context(settings: BrokerSettings) -> ssl.SSLContext | None:
    """The server's TLS context, or ``None`` without TLS; raises :class:`SettingsError`."""
    if settings.tls == "off":
        return None
    if settings.certificate is None:
        raise errors.SettingsError(f"tls = {settings.tls!r} needs a certificate and its key")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.certificate, settings.key)
    except (OSError, ssl.SSLError) as error:
        raise errors.SettingsError(
            f"{settings.certificate} cannot be used for TLS: {error}"
        ) from error
    return context
