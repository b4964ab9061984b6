"""One connection of a remoting client: reads frames, serves requests, and writes responses.

Records for clients that differ from the stored ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeAlias

import attrs

from lakelog import Message, StoredMessage
from lakelog.errors import PutRefused, StoreError
from lakelog.format.encoder import Encoder, Limits, RoundRobin
from lakelog.format.queue_offsets import QueueOffsets
from lakelog.results import PutStatus
from lakelog_broker.appending import restored
from lakelog_broker.codes import LimitExceeded, Refused, RequestCode, ResponseCode
from lakelog_broker.properties import property_value
from lakelog_broker.remoting.frame import (
    MAX_FRAME_BYTES,
    ONE_WAY_FLAG,
    BadFrame,
    RemotingCommand,
    decode_frame,
    encode_frame,
)

_ENCODER: Final = Encoder(
    Limits(MAX_FRAME_BYTES, MAX_FRAME_BYTES), "127.0.0.1:0", False, None, RoundRobin(1)
)


def record_with_own_topic(stored: StoredMessage) -> bytes:
    """Encode a message that was set aside with its own topic and queue id, at its stored offsets.

    All properties are kept. Raises ``ValueError`` if the message has no own topic.
    """
    own = restored(stored)
    message: Message = attrs.evolve(
        own,
        properties=stored.properties_bytes,
        store_host=stored.store_host,
        prepared_transaction_offset=stored.prepared_transaction_offset,
    )
    record = _ENCODER.encode_one(message)
    offsets = QueueOffsets({record.queue: stored.queue_offset})
    record.place(stored.physical_offset, 2 * MAX_FRAME_BYTES, offsets, stored.store_timestamp_ms)
    return bytes(record.buffer)


_LOG = logging.getLogger("lakelog.broker")
_ILLEGAL = {
    PutStatus.MESSAGE_ILLEGAL,
    PutStatus.MESSAGE_SIZE_EXCEEDED,
    PutStatus.PROPERTIES_SIZE_EXCEEDED,
}

_SENDS: Final = {
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.CONSUMER_SEND_MSG_BACK,
}
"""Requests that are completed after their client has disconnected; others are cancelled."""
MAX_UNANSWERED_BYTES: Final = 8 << 20
"""A connection is not read while its unanswered requests have more bytes than this."""
MAX_UNSENT_BYTES: Final = 4 << 20
"""A connection is not read while its unsent responses have more bytes than this."""
_WRITE_BYTES: Final = 256 << 10
_HEADER_BYTES: Final = 512
"""Bytes that are counted for the header of an unanswered request."""

CALL_TIMEOUT_S: Final = 10.0
"""Timeout for the response of a client; as RocketMQ's ``Broker2Client.callClient``."""
MAX_FIELDS: Final = 256
"""Most fields of a header; RocketMQ's clients send about 20."""

Answer: TypeAlias = RemotingCommand | None
Handler: TypeAlias = Callable[["Connection", RemotingCommand], Answer | Awaitable[Answer]]
"""Serves a request; ``None`` means no response. An awaitable may end after later requests."""


class ConnectionOwner(Protocol):
    """The server of a connection."""

    def check(self, request: RemotingCommand) -> None:
        """Raise :class:`Refused` if the user of ``request`` may not send it."""

    def handler(self, code: int) -> Handler | None:
        """The handler of a request code, or ``None``."""

    def take(self, connection: Connection, frame: bytes) -> bool:
        """Serve a common frame by a fast path; false if nothing was done."""

    def opened(self, connection: Connection) -> None:
        """Note a new connection."""

    def closed(self, connection: Connection) -> None:
        """Remove a connection that is closed."""

    def next_opaque(self) -> int:
        """Return a new ``opaque`` number for a request to a client."""


class Connection(asyncio.Protocol):
    """A client's connection.

    Reading pauses if the client does not read its responses, or sends faster than messages are put.
    So memory is bounded by ``MAX_UNANSWERED_BYTES``, ``MAX_UNSENT_BYTES``, one frame, and one
    response.

    :ivar peer: ``address:port`` of the client
    :ivar groups: kind (``consumers`` or ``producers``) and name of each of the client's groups
    """

    def __init__(self, server: ConnectionOwner) -> None:
        self.peer = ""
        self.groups: set[tuple[str, str | None]] = set()
        self._is_over_limit = False
        self._server = server
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
        self._can_write = True
        self._is_reading = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the client's address."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=MAX_UNSENT_BYTES)
        host, port = transport.get_extra_info("peername")[:2]
        self.peer = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._server.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # of the base
        """Cancel the waiting requests, except sends, which are completed."""
        self._writable.set()
        for task, request in self._tasks.items():
            if request.code not in _SENDS:
                task.cancel()
        for call in self._calls.values():
            if not call.done():
                call.set_exception(ConnectionError("the client has left"))
        self._server.closed(self)

    def fileno(self) -> int:
        """The socket's descriptor; -1 if it is closed."""
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        number: int = -1 if sock is None else sock.fileno()
        return number

    def close(self) -> None:
        """Close the connection after the responses that were written."""
        if self._transport is not None:
            self._transport.close()

    def pause_writing(self) -> None:
        """Stop serving requests: the client does not read its responses."""
        self._can_write = False
        self._writable.clear()

    def resume_writing(self) -> None:
        """Continue to serve requests after :meth:`pause_writing`."""
        self._can_write = True
        self._writable.set()
        self._resume()

    async def writable(self) -> None:
        """Wait while the client does not read its responses."""
        while not self._writable.is_set():
            await self._writable.wait()

    def data_received(self, data: bytes) -> None:
        """Serve all complete frames; write their responses together."""
        if not self._received:
            self._received = data
        else:
            self._received += data
            if len(self._received) < self._needed_bytes:
                return  # _serve_received would copy the parts of a large frame each time
        self._serve_received()

    def _is_busy(self) -> bool:
        return self._unanswered_bytes > MAX_UNANSWERED_BYTES or not self._can_write

    def _resume(self) -> None:
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
        try:
            while length - start >= 4 and not self._is_busy():
                size = int.from_bytes(received[start : start + 4], "big")
                if not 4 <= size <= MAX_FRAME_BYTES:
                    raise BadFrame(f"a frame of {size} bytes")
                end = start + 4 + size
                if end > length:
                    self._needed_bytes = 4 + size
                    break
                frame = received[start + 4 : end]
                if not self._server.take(self, frame):
                    self._serve(decode_frame(frame))
                start = end
        except BadFrame as error:
            _LOG.warning("%s is disconnected, as it does not send frames: %s", self.peer, error)
            self.close()
            return
        self._received = bytearray(received[start:]) if start < length else b""
        self._write_responses()
        if self._is_busy() and self._is_reading and self._transport is not None:
            self._is_reading = False
            self._transport.pause_reading()

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
            handler = self._server.handler(request.code) or _unsupported
            if len(request.fields) > MAX_FIELDS:
                remark = f"a header of {len(request.fields)} fields; at most {MAX_FIELDS} are taken"
                raise LimitExceeded(remark)
            self._server.check(request)
            answer = handler(self, request)
        except Exception as error:  # noqa: BLE001  # a request must not end the connection
            if isinstance(error, LimitExceeded) and not self._is_over_limit:
                self._is_over_limit = True  # one log line per connection
                _LOG.warning("%s: request %d is refused: %s", self.peer, request.code, error)
            answer = failed(request, error)
        if answer is None or isinstance(answer, RemotingCommand):
            self.respond(request, answer)
            return
        task = asyncio.ensure_future(self._serve_later(request, answer))
        self._tasks[task] = request
        self._unanswered_bytes += len(request.body) + _HEADER_BYTES
        task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._unanswered_bytes -= len(self._tasks.pop(task).body) + _HEADER_BYTES
        self._resume()

    async def _serve_later(self, request: RemotingCommand, answer: Awaitable[Answer]) -> None:
        try:
            found = await answer
        except Exception as error:  # noqa: BLE001  # as above
            found = failed(request, error)
        if found is not None and not request.is_one_way:
            self._write(encode_frame(found))

    def respond(self, request: RemotingCommand, answer: Answer) -> None:
        """Queue a response; all responses to frames that came together are written together."""
        if answer is not None and not request.is_one_way:
            self.respond_frame(encode_frame(answer))

    def respond_frame(self, frame: bytes) -> None:
        """As :meth:`respond`, with an encoded frame."""
        self._responses.append(frame)
        self._response_bytes += len(frame)
        if self._response_bytes > _WRITE_BYTES:
            self._write_responses()

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def notify(self, code: RequestCode, fields: dict[str, str], body: bytes = b"") -> None:
        """Send a one-way request to the client."""
        opaque = self._server.next_opaque()
        self._write(encode_frame(RemotingCommand(code, opaque, ONE_WAY_FLAG, fields, body)))

    async def call(
        self, code: RequestCode, fields: dict[str, str], body: bytes = b""
    ) -> RemotingCommand:
        """Send a request to the client, and return its response.

        Raises ``TimeoutError`` after ``CALL_TIMEOUT_S``, and ``ConnectionError`` if it disconnects.
        """
        opaque = self._server.next_opaque()
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


def _unsupported(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    _LOG.warning("%s sent request code %d, which is not served", connection.peer, request.code)
    remark = f"request type {request.code} not supported"
    return request.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)


def failed(request: RemotingCommand, error: Exception) -> RemotingCommand:
    """The response to a request that raised ``error``."""
    if isinstance(error, Refused):
        return request.response(error.code, error.remark)
    if isinstance(error, PutRefused):
        refused = error.status in _ILLEGAL
        code = ResponseCode.MESSAGE_ILLEGAL if refused else ResponseCode.SERVICE_NOT_AVAILABLE
        return request.response(code, str(error))
    if isinstance(error, KeyError):
        return request.response(ResponseCode.SYSTEM_ERROR, f"the field {error} is missing")
    level = logging.WARNING if isinstance(error, StoreError | ValueError) else logging.ERROR
    _LOG.log(level, "request code %d failed", request.code, exc_info=error)
    return request.response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
