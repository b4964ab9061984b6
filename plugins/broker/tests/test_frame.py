"""Frames are cut, decoded and encoded as ``json`` and RocketMQ's classes would."""

from __future__ import annotations

import asyncio
import json
import struct
from pathlib import Path

import pytest

from lakelog_broker.codes import ResponseCode
from lakelog_broker.remoting.frame import (
    BINARY_FORM,
    BadFrame,
    RemotingCommand,
    decode_frame,
    encode_frame,
)
from plugins.broker.tests.support import Client, served

STRINGS = ('a "quoted" \\ one', "\x00\x01\x1f\x7f", "ünï\u2028çødé 𝄞", "", "\ud800")


def _json_frame(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">i", len(header)) + header + body


@pytest.mark.parametrize("text", STRINGS)
def test_a_json_header_is_that_of_json(text: str) -> None:
    command = RemotingCommand(ResponseCode.SUCCESS, 7, 1, {text: text}, b"body", text)
    size = int.from_bytes(encode_frame(command)[4:8], "big")
    header = {
        "code": 0, "extFields": {text: text}, "flag": 1, "language": "JAVA", "opaque": 7,
        "serializeTypeCurrentRPC": "JSON", "version": command.version, "remark": text,
    }  # fmt: skip  # one line for each half
    expected = json.dumps(header, ensure_ascii=False, separators=(",", ":"))
    assert encode_frame(command)[8 : 8 + size] == expected.encode("utf-8", "replace")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32-le"])
@pytest.mark.parametrize("space", ["", " \r\n"])
def test_a_header_is_read_as_json_reads_it(encoding: str, space: str) -> None:
    text = space + json.dumps({"code": 310, "extFields": {"b": "ü"}}) + space
    command = decode_frame(_json_frame(text.encode(encoding), b"body"))
    assert (command.code, command.fields, command.body) == (310, {"b": "ü"}, b"body")


@pytest.mark.parametrize("header", [b"", b"{", b"{} {}", b"\xff", b'{"code":1.5}', b"[]"])
def test_a_damaged_header_is_refused(header: bytes) -> None:
    with pytest.raises(BadFrame):
        decode_frame(_json_frame(header))


@pytest.mark.parametrize("at", [21, 25])
@pytest.mark.parametrize("length", [b"\xff\xff", b"\x7f\xff"])
def test_a_length_beyond_the_fields_is_refused(at: int, length: bytes) -> None:
    command = RemotingCommand(310, 7, 0, {"ab": "cd"}, b"body", form=BINARY_FORM)
    frame = bytearray(encode_frame(command)[4:])
    assert decode_frame(bytes(frame)).fields == {"ab": "cd"}
    frame[4 + at : 6 + at] = length
    with pytest.raises(BadFrame):
        decode_frame(bytes(frame))


def test_frames_are_served_however_they_are_split(tmp_path: Path) -> None:
    fields = {"a": "group", "b": "split", "c": "TBW102", "d": "1", "e": "0", "g": "1"}
    sizes = (1, 100_000, 0, 5)
    frames = [
        encode_frame(RemotingCommand(310, each, 0, fields, bytes(size), form=each % 2))
        for each, size in enumerate(sizes)
    ]
    sent = b"".join(frames)

    async def main() -> None:
        async with served(tmp_path) as broker:
            for length in (7, 1_000, len(frames[0]) + 2, len(sent)):
                client = await Client.to(broker)
                for at in range(0, 600 if length == 7 else len(sent), length):
                    client.writer.write(sent[at : at + length])
                    await client.writer.drain()
                    await asyncio.sleep(0)
                if length == 7:
                    client.writer.write(sent[at + length :])
                found = [await client.receive() for _ in sizes]
                assert [(each.opaque, each.code) for each in found] == [(i, 0) for i in range(4)]
                client.close()

    asyncio.run(main())
