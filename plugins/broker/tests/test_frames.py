"""Frames and batches of peers, right and damaged: one kind of error, and others are served."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import struct
from collections.abc import Awaitable, Callable, Iterator
from importlib import import_module
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lakelog_broker.broker import Broker
from lakelog_broker.codes import Refused, ResponseCode
from lakelog_broker.remoting.frame import (
    BINARY_FORM,
    JSON_FORM,
    BadFrame,
    RemotingCommand,
    decode_frame,
    encode_frame,
)
from lakelog_broker.remoting.requests import REQUESTS, RequestCode
from lakelog_broker.remoting.sending import split_batch
from lakelog_rocketmq.fastjson import encode
from plugins.broker.tests.support import PATIENCE_S, Client, at_a_broker, served

STRINGS = ('a "quoted" \\ one', "\x00\x01\x1f\x7f", "ünï\u2028çødé 𝄞", "", "\ud800")
_BATCHED: Final = struct.Struct(">iiiii")
_texts = st.text(max_size=20)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _texts,
    lambda each: st.lists(each, max_size=4) | st.dictionaries(_texts, each, max_size=4),
    max_leaves=8,
)
_NAMES: Final = """
    a b c d e f g h i j l m topic queueId queueOffset maxMsgNums consumerGroup offset group sysFlag
    delayLevel extraInfo invisibleTime subscription expType initMode order pollTime commitOffset
    key maxNum beginTimestamp endTimestamp timestamp suspendTimeoutMillis properties srcGroup
"""
_names = st.sampled_from(_NAMES.split())
_values = _texts | st.integers().map(str) | st.sampled_from(["true", "-1", "orders", "TBW102"])
_codes = st.sampled_from(list(RequestCode)) | st.integers(-(1 << 15), (1 << 15) - 1)
_fields = st.dictionaries(_names | _texts, _values, max_size=16)
_documents = _json.map(lambda each: json.dumps(each).encode())
_bodies = st.binary(max_size=60) | _documents
_SMALL: Final = st.sampled_from([each for each in RequestCode if each < 1 << 15])


def _command(form: int) -> st.SearchStrategy[RemotingCommand]:
    """Random commands; the binary form has codes of 16 bits."""
    return st.builds(
        RemotingCommand,
        _codes if form == JSON_FORM else _SMALL,
        st.integers(-(1 << 31), (1 << 31) - 1),
        st.sampled_from([0, 2, 4]),
        _fields,
        _bodies,
        form=st.just(form),
    )


_commands = _command(JSON_FORM) | _command(BINARY_FORM)


@st.composite
def _headers(draw: Any) -> bytes:
    """A frame whose header is JSON of any shape, or random bytes of either form."""
    head = draw(st.binary(max_size=60) | _documents)
    form, body = draw(st.integers(0, 3)), draw(_bodies)
    size = draw(st.just(len(head)) | st.integers(0, (1 << 24) - 1))
    frame: bytes = struct.pack(">I", form << 24 | size) + head + body
    return frame


@st.composite
def _damaged(draw: Any) -> bytes:
    """A right frame, cut or with bytes that are changed; its length is left out."""
    frame = bytearray(encode_frame(draw(_commands))[4:])
    for place in draw(st.lists(st.integers(0, len(frame) - 1), max_size=4)):
        frame[place] = draw(st.integers(0, 255))
    return bytes(frame[: draw(st.just(len(frame)) | st.integers(0, len(frame)))])


# --- the forms ---


@pytest.mark.parametrize("text", STRINGS)
def test_a_json_header_is_that_of_json(text: str) -> None:
    command = RemotingCommand(ResponseCode.SUCCESS, 7, 1, {text: text}, b"body", text)
    size = int.from_bytes(encode_frame(command)[4:8], "big")
    header = {
        "code": 0, "extFields": {text: text}, "flag": 1, "language": "JAVA", "opaque": 7,
        "remark": text, "serializeTypeCurrentRPC": "JSON", "version": command.version,
    }  # fmt: skip  # one line for each half
    assert encode_frame(command)[8 : 8 + size] == encode(header)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32-le"])
def test_a_header_is_read_as_json_reads_it(encoding: str) -> None:
    for space in ("", " \r\n"):
        text = space + json.dumps({"code": 310, "extFields": {"b": "ü"}}) + space
        header = text.encode(encoding)
        command = decode_frame(struct.pack(">i", len(header)) + header + b"body")
        assert (command.code, command.fields, command.body) == (310, {"b": "ü"}, b"body")


@pytest.mark.parametrize("header", [b"", b"{", b"{} {}", b"\xff", b'{"code":1.5}', b"[]"])
def test_a_damaged_header_is_refused(header: bytes) -> None:
    with pytest.raises(BadFrame):
        decode_frame(struct.pack(">i", len(header)) + header)


@pytest.mark.parametrize("at", [21, 25])
def test_a_length_beyond_the_fields_is_refused(at: int) -> None:
    command = RemotingCommand(310, 7, 0, {"ab": "cd"}, b"body", form=BINARY_FORM)
    frame = encode_frame(command)[4:]
    for length in (b"\xff\xff", b"\x7f\xff"):
        with pytest.raises(BadFrame):
            decode_frame(frame[: 4 + at] + length + frame[6 + at :])


@given(st.binary(max_size=80) | _headers() | _damaged())
def test_a_frame_is_decoded_or_is_bad(frame: bytes) -> None:
    with contextlib.suppress(BadFrame):
        found = decode_frame(frame)
        assert all(type(value) is str for value in found.fields.values())
        encode_frame(found.response(0, "taken"))


@given(_commands)
def test_a_frame_is_what_was_encoded(command: RemotingCommand) -> None:
    found = decode_frame(encode_frame(command)[4:])
    for name in ("code", "opaque", "flag", "fields", "body", "form"):
        assert getattr(found, name) == getattr(command, name)


# --- batches of messages ---


def _batch(messages: list[tuple[bytes, bytes, int]]) -> bytes:
    return b"".join(
        _BATCHED.pack(22 + len(body) + len(properties), 0, 0, flag, len(body))
        + body
        + struct.pack(">h", len(properties))
        + properties
        for body, properties, flag in messages
    )


_batches = st.lists(
    st.tuples(st.binary(max_size=9), st.binary(max_size=9), st.integers(-9, 9)), min_size=1
)


@given(_batches, st.data())
def test_a_batch_is_split_into_its_messages_and_a_damaged_one_may_be_refused(
    messages: list[tuple[bytes, bytes, int]], data: st.DataObject
) -> None:
    body = bytearray(_batch(messages))
    assert split_batch(bytes(body)) == messages
    for place in data.draw(st.lists(st.integers(0, len(body) - 1), max_size=3)):
        body[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(Refused):
        found = split_batch(bytes(body[: data.draw(st.integers(0, len(body)))]))
        assert sum(22 + len(each) + len(more) for each, more, _ in found) <= len(body)


@given(st.binary(max_size=120))
def test_random_bytes_are_no_batch_of_another_error(body: bytes) -> None:
    with contextlib.suppress(Refused):
        split_batch(body)


# --- at a broker ---


@at_a_broker()
async def test_frames_are_served_however_they_are_split(broker: Broker, client: Client) -> None:
    fields = {"a": "group", "b": "split", "c": "TBW102", "d": "1", "e": "0", "g": "1"}
    sizes = (1, 100_000, 0, 5)
    frames = [
        encode_frame(RemotingCommand(310, each, 0, fields, bytes(size), form=each % 2))
        for each, size in enumerate(sizes)
    ]
    sent = b"".join(frames)
    for length in (7, 1_000, len(frames[0]) + 2, len(sent)):
        at = 0
        while at < len(sent):
            until = len(sent) if at > 600 and length == 7 else at + length
            client.writer.write(sent[at:until])
            await client.writer.drain()
            await asyncio.sleep(0)
            at = until
        found = [await client.receive() for _ in sizes]
        assert [(each.opaque, each.code) for each in found] == [(i, 0) for i in range(4)]


class _Session:
    """A broker for many examples, with a client that must always be served."""

    def __init__(self, runner: asyncio.Runner, broker: Broker) -> None:
        self._runner, self._broker = runner, broker
        self._good = runner.run(Client.to(broker))

    def run(self, work: Callable[[Client], Awaitable[None]]) -> None:
        """Run ``work`` with a new connection; then send a message beside it."""

        async def both() -> None:
            bad = await Client.to(self._broker)
            await work(bad)
            assert await self._good.is_served()
            await _closed(bad)

        self._runner.run(both())

    def close(self) -> None:
        self._runner.run(_closed(self._good))


async def _closed(client: Client) -> None:
    client.close()
    with contextlib.suppress(ConnectionError):
        await client.writer.wait_closed()


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Session]:
    with asyncio.Runner() as runner:
        context = served(tmp_path_factory.mktemp("frames"))
        broker = runner.run(context.__aenter__())
        try:
            made = _Session(runner, broker)
            yield made
            made.close()
        finally:
            runner.run(context.__aexit__(None, None, None))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(command=_commands)
@example(command=RemotingCommand(1 << 14, 1))
def test_every_request_has_a_response(
    session: _Session, command: RemotingCommand, caplog: pytest.LogCaptureFixture
) -> None:
    """A random request of any code is answered; no handler fails for a reason of its own."""
    command.opaque = 77

    async def work(client: Client) -> None:
        """Wait for the answers to a random request and to one behind it."""
        client.writer.write(encode_frame(command))
        probe = RemotingCommand(1 << 14, 78)  # no such code: answered at once
        client.writer.write(encode_frame(probe))
        waits = {78} if command.is_one_way else {77, 78}
        async with asyncio.timeout(PATIENCE_S):
            while waits:
                found = await client.receive()
                if found.is_response:
                    waits.discard(found.opaque)

    caplog.clear()
    session.run(work)
    assert not [each for each in caplog.records if each.levelname == "ERROR"], caplog.text


@given(frame=_headers() | _damaged() | st.binary(max_size=60), torn=st.integers(0, 80))
def test_damaged_frames_end_at_most_their_connection(
    session: _Session, frame: bytes, torn: int
) -> None:
    async def work(client: Client) -> None:
        data = struct.pack(">I", len(frame)) + frame
        client.writer.write(data[:torn])
        await asyncio.sleep(0)
        client.writer.write(data[torn:])
        with contextlib.suppress(OSError):  # the broker may have closed meanwhile
            client.writer.write_eof()
        assert await client.ended()

    session.run(work)


def test_every_served_request_has_its_handler() -> None:
    """The table names them, as they are imported by their first request."""
    for row in REQUESTS.values():
        module, _, name = row.handler.partition(":")
        handler = getattr(import_module(f"lakelog_broker.remoting.{module}"), name)
        assert [*inspect.signature(handler).parameters][1].endswith("request"), row
