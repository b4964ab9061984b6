"""The gRPC port, in the event loop of the broker."""

from __future__ import annotations

import asyncio
import functools
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc
import grpc.aio

from lakelog_broker.broker import Broker
from lakelog_broker.grpc.access import GrpcAccess
from lakelog_broker.grpc.certificates import key_and_certificate
from lakelog_broker.grpc.clients import GrpcClients, client_id_of
from lakelog_broker.grpc.consuming import Consuming
from lakelog_broker.grpc.port_multiplexer import PortMultiplexer
from lakelog_broker.grpc.producing import Producing
from lakelog_broker.grpc.protos import SERVICE, class_of, proto
from lakelog_broker.grpc.routing import Routing
from lakelog_broker.grpc.statuses import status, status_of
from lakelog_broker.popping.service import Popping

_GRACE_S: Final = 0.2


class GrpcServer:
    """Serves ``apache.rocketmq.v2.MessagingService``, in plain text and with TLS on one port.

    :ivar port: the port, once it is bound
    """

    def __init__(self, broker: Broker, popping: Popping) -> None:
        self.port = 0
        self._broker = broker
        self._routing = Routing(broker)
        self._access = GrpcAccess(broker)
        self._clients = GrpcClients(broker, self._access)
        self._producing = Producing(broker, self._routing)
        self._consuming = Consuming(popping, self._routing, self._clients)
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
        self._server = await asyncio.get_running_loop().create_server(
            lambda: PortMultiplexer(plain, tls), settings.host, port, backlog=1024
        )
        self.port = self._routing.port = self._server.sockets[0].getsockname()[1]

    async def renew(self) -> None:
        """Renew the hand-outs of living clients until the task is cancelled."""
        await self._consuming.renew()

    async def close(self) -> None:
        """Close the port and all connections."""
        if self._server is not None:
            self._server.close()
        if self._grpc is not None:
            await self._grpc.stop(_GRACE_S)
        self._folder.cleanup()

    def _handler(self, method: Any) -> Any:
        request, response = class_of(method.input_type), class_of(method.output_type)
        forms = request.FromString, response.SerializeToString
        if method.name == "Telemetry":
            return grpc.stream_stream_rpc_method_handler(self._clients.telemetry, *forms)
        if method.name == "ReceiveMessage":
            return grpc.unary_stream_rpc_method_handler(self._receive, *forms)
        if method.name == "PullMessage":
            return grpc.unary_stream_rpc_method_handler(_not_pulled, *forms)
        call = self._calls().get(method.name, _unsupported(response))

        async def checked(sent: Any, context: Any) -> Any:
            self._access.check(method.name, sent, context)
            return await call(sent, context)

        return grpc.unary_unary_rpc_method_handler(_answering(checked, response), *forms)

    async def _receive(self, request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            self._access.check("ReceiveMessage", request, context)
        except Exception as error:  # noqa: BLE001  # a status, no error of gRPC
            yield proto("ReceiveMessageResponse")(status=status_of(error))
            return
        async for each in self._consuming.receive(request, context):
            yield each

    def _calls(self) -> dict[str, Callable[[Any, Any], Awaitable[Any]]]:
        return {
            "QueryRoute": self._routing.query_route,
            "QueryAssignment": self._routing.query_assignment,
            "Heartbeat": self._heartbeat,
            "NotifyClientTermination": self._terminated,
            "SendMessage": self._producing.send,
            "EndTransaction": self._producing.end_transaction,
            "RecallMessage": self._producing.recall,
            "AckMessage": self._consuming.acknowledge,
            "ChangeInvisibleDuration": self._consuming.change_invisible,
            "ForwardMessageToDeadLetterQueue": self._consuming.dead_letter,
        }

    async def _heartbeat(self, _request: Any, context: Any) -> Any:
        self._clients.heartbeat(client_id_of(context))
        return proto("HeartbeatResponse")(status=status())

    async def _terminated(self, _request: Any, context: Any) -> Any:
        self._clients.terminated(client_id_of(context))
        return proto("NotifyClientTerminationResponse")(status=status())


def _answering(
    call: Callable[[Any, Any], Awaitable[Any]], response: Any
) -> Callable[[Any, Any], Awaitable[Any]]:
    """Wrap ``call``: an error becomes the status of a response."""

    @functools.wraps(call)
    async def answered(request: Any, context: Any) -> Any:
        try:
            return await call(request, context)
        except Exception as error:  # noqa: BLE001  # a status, no error of gRPC
            return response(status=status_of(error))

    return answered


def _unsupported(response: Any) -> Callable[[Any, Any], Awaitable[Any]]:
    """A call that is not served; RocketMQ's proxy 5.3.3 answers calls about offsets so, too."""

    async def call(_request: Any, _context: Any) -> Any:
        return response(status=status("NOT_IMPLEMENTED", "the call is not served"))

    return call


async def _not_pulled(_request: Any, _context: Any) -> Any:
    yield proto("PullMessageResponse")(status=status("NOT_IMPLEMENTED", "the call is not served"))
