"""Random bodies of gRPC calls: each call ends, and a client beside them is served."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import grpc.aio
import pytest
from google.protobuf import message_factory
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakelog_broker.broker import Broker
from lakelog_broker.grpc.mapping import CODES, SERVICE, proto
from plugins.broker.tests.support import PATIENCE_S, served

_TOPIC: Final = "orders"
_NUMBERS: Final = set(CODES.values())
_MOST_DEPTH: Final = 4
_POLL_S: Final = 0.6
"""The deadline of a call that waits for messages: it ends half a second before."""
_METHODS: Final = tuple(SERVICE.methods)
_TYPE_NAMES: Final = {
    getattr(SERVICE.methods[0].input_type.fields[0], name): name
    for name in dir(SERVICE.methods[0].input_type.fields[0])
    if name.startswith("TYPE_")
}
_handles = st.builds(
    "0 {} 60000 0 {} broker-a {} {}".format,
    *(st.integers(-9, 9), st.integers(-1, 3), st.integers(-1, 9), st.integers(-1, 9)),
)
_texts = st.text(max_size=12) | st.sampled_from(
    [_TOPIC, "G", "m1", "TagA", "a > 1 AND b = 'x'", "0.0", "-1.f", "%RETRY%G", "\x01", "*"]
)
_ids = st.sampled_from(["c1", "c2"]) | st.none()


def _value(field: Any, depth: int) -> st.SearchStrategy[Any]:
    """Random values of one field; integers of its width."""
    if field.message_type is not None:
        return _messages(field.message_type, depth + 1)
    if field.enum_type is not None:
        return st.sampled_from([each.number for each in field.enum_type.values]) | st.integers(
            -(1 << 31), (1 << 31) - 1
        )
    if field.type == field.TYPE_BYTES:
        return st.binary(max_size=20)
    if field.type == field.TYPE_STRING:
        return _handles | _texts if field.name == "receipt_handle" else _texts
    if field.type == field.TYPE_BOOL:
        return st.booleans()
    bits = 64 if "64" in _TYPE_NAMES[field.type] else 32
    small = st.integers(0, 40)
    return small | st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


@st.composite
def _messages(draw: Any, descriptor: Any, depth: int = 0) -> Any:
    """A random message of a type: most fields that lead deeper are left out."""
    made = message_factory.GetMessageClass(descriptor)()
    fields = [each for each in descriptor.fields if depth < _MOST_DEPTH or not each.message_type]
    for field in fields:
        if not draw(st.booleans()):
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for name, value in draw(st.dictionaries(_texts, _texts, max_size=3)).items():
                getattr(made, field.name)[name] = value
        elif field.is_repeated:
            getattr(made, field.name).extend(
                draw(st.lists(_value(field, depth), min_size=1, max_size=3))
            )
        elif field.message_type is not None:
            getattr(made, field.name).CopyFrom(draw(_value(field, depth)))
        else:
            setattr(made, field.name, draw(_value(field, depth)))
    return made


@st.composite
def _damaged(draw: Any, descriptor: Any) -> bytes:
    """The bytes of a message, cut or changed."""
    data = bytearray(draw(_messages(descriptor)).SerializeToString())
    if data:
        for place in draw(st.lists(st.integers(0, len(data) - 1), max_size=4)):
            data[place] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))])


@st.composite
def _calls(draw: Any) -> tuple[Any, bytes]:
    """A method, and a body for it."""
    method = draw(st.sampled_from(_METHODS))
    whole = _messages(method.input_type).map(lambda each: each.SerializeToString())
    return method, draw(whole | _damaged(method.input_type) | st.binary(max_size=40))


class _Session:
    """A broker for many examples, with a client that must always be served."""

    def __init__(self, runner: asyncio.Runner, broker: Broker) -> None:
        self._runner = runner
        self._channel, self._beside = (runner.run(_channel(broker)) for _ in range(2))
        runner.run(self._send())

    def close(self) -> None:
        self._runner.run(self._channel.close())
        self._runner.run(self._beside.close())

    def run(self, method: Any, body: bytes, client_id: str | None) -> None:
        """Make a call; then send a message beside it."""

        async def both() -> None:
            before = len(asyncio.all_tasks())
            async with asyncio.timeout(PATIENCE_S):
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await self._call(method, body, client_id)
                await self._send()
                while len(asyncio.all_tasks()) > before:
                    await asyncio.sleep(0.001)

        self._runner.run(both())

    async def _call(self, method: Any, body: bytes, client_id: str | None) -> None:
        metadata = [("x-mq-client-id", client_id)] if client_id else []
        name, response = f"/{SERVICE.full_name}/{method.name}", proto(method.output_type.name)
        forms = {"response_deserializer": response.FromString}
        if method.name == "Telemetry":
            stream = self._channel.stream_stream(name, **forms)
            found = stream(_once(body), metadata=metadata)
        elif method.name in {"ReceiveMessage", "PullMessage"}:
            stream = self._channel.unary_stream(name, **forms)
            found = stream(body, metadata=metadata, timeout=_POLL_S)
        else:
            call = self._channel.unary_unary(name, **forms)
            answer = await call(body, metadata=metadata, timeout=PATIENCE_S)
            assert answer.status.code in _NUMBERS
            return
        async for each in found:
            assert each.status.code in _NUMBERS

    async def _send(self) -> None:
        sent = proto("Message")(topic={"name": _TOPIC}, body=b"x")
        sent.system_properties.message_id = "m1"
        call = self._beside.unary_unary(
            f"/{SERVICE.full_name}/SendMessage",
            response_deserializer=proto("SendMessageResponse").FromString,
        )
        request = proto("SendMessageRequest")(messages=[sent]).SerializeToString()
        answer = await call(request, timeout=PATIENCE_S)
        assert answer.status.code == CODES["OK"]


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def _channel(broker: Broker) -> Any:
    return grpc.aio.insecure_channel(broker.grpc_address)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Session]:
    with asyncio.Runner() as runner:
        context = served(tmp_path_factory.mktemp("calls"), grpc_port=0)
        broker = runner.run(context.__aenter__())
        try:
            made = _Session(runner, broker)
            yield made
            made.close()
        finally:
            runner.run(context.__aexit__(None, None, None))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(call=_calls(), client_id=_ids)
def test_every_call_ends_and_leaves_nothing(
    session: _Session,
    call: tuple[Any, bytes],
    client_id: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No call fails for a reason of the broker's own, and no task of it stays."""
    caplog.clear()
    session.run(*call, client_id)
    own = [each for each in caplog.records if each.name in {"lakelog.broker", "asyncio"}]
    assert not [each for each in own if each.levelname == "ERROR"], caplog.text
