"""Remoting frames: ``i32 length | i8 form, i24 header length | header | body``, big-endian.

The length counts all bytes after itself. A header of form 0 is JSON, one of form 1 is binary:
``i16 code | i8 language | i16 version | i32 opaque | i32 flag | i32 length, remark | i32 length,
(i16 length, name | i32 length, value)*``. A response has the form of its request. Source: RocketMQ
5.3.3, ``RemotingCommand`` and ``RocketMQSerializable``.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Final

import attrs

JSON_FORM: Final = 0
BINARY_FORM: Final = 1
RESPONSE_FLAG: Final = 1
ONE_WAY_FLAG: Final = 2
VERSION: Final = 479
"""The ordinal of RocketMQ 5.3.3 in ``MQVersion``."""
MAX_FRAME_BYTES: Final = 16 << 20
"""RocketMQ's ``com.rocketmq.remoting.frameMaxLength``."""

_HEAD: Final = struct.Struct(">hBhiii")  # code, language, version, opaque, flag, remark length
_I32: Final = struct.Struct(">i")
_I16: Final = struct.Struct(">h")
_LENGTHS: Final = struct.Struct(">iI")
_encode_json: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class BadFrame(ValueError):
    """Bytes of a peer are no frame; its connection is closed."""


@attrs.define(slots=True, eq=False)
class RemotingCommand:
    """A request or a response.

    :ivar code: a ``RequestCode`` or ``ResponseCode``
    :ivar opaque: the number of a request, which its response repeats
    :ivar flag: bits of ``RESPONSE_FLAG`` and ``ONE_WAY_FLAG``
    :ivar fields: the header's ``extFields``; all values are strings
    :ivar version: the ordinal of the sender's version in ``MQVersion``
    :ivar form: ``JSON_FORM`` or ``BINARY_FORM``
    """

    code: int
    opaque: int = 0
    flag: int = 0
    fields: dict[str, str] = attrs.field(factory=dict)
    body: bytes = b""
    remark: str | None = None
    version: int = VERSION
    form: int = JSON_FORM
    language: str = "JAVA"

    @property
    def is_response(self) -> bool:
        """Whether it answers a request."""
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_one_way(self) -> bool:
        """Whether its sender wants no response."""
        return bool(self.flag & ONE_WAY_FLAG)

    def response(
        self, code: int = 0, remark: str | None = None, body: bytes = b"", **fields: object
    ) -> RemotingCommand:
        """A response to this request; values of ``fields`` are converted to strings."""
        texts = {
            name: value if type(value) is str else str(value) for name, value in fields.items()
        }
        return RemotingCommand(
            code, self.opaque, RESPONSE_FLAG, texts, body, remark, VERSION, self.form
        )


def decode_frame(frame: memoryview) -> RemotingCommand:
    """Decode the bytes behind the length of a frame; raises :class:`BadFrame`."""
    if len(frame) < _I32.size:
        raise BadFrame(f"a frame of {len(frame)} bytes has no header length")
    (word,) = _I32.unpack_from(frame)
    form, size = (word >> 24) & 0xFF, word & 0xFFFFFF
    if size > len(frame) - _I32.size:
        raise BadFrame(f"a header of {size} bytes in a frame of {len(frame)}")
    head, body = frame[4 : 4 + size], bytes(frame[4 + size :])
    if form not in _DECODERS:
        raise BadFrame(f"unknown form {form} of a header")
    try:
        return _DECODERS[form](head, body)
    except BadFrame:
        raise
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadFrame(f"a damaged header: {error!r}") from error


def _decode_json(head: memoryview, body: bytes) -> RemotingCommand:
    found = json.loads(bytes(head))
    fields = found.get("extFields") or {}
    numbers = found["code"], found.get("opaque", 0), found.get("flag", 0), found.get("version", 0)
    if not all(type(number) is int for number in numbers):
        raise BadFrame("code, opaque, flag and version of a header must be integers")
    if not all(type(value) is str for value in fields.values()):
        fields = {name: _text(value) for name, value in fields.items() if value is not None}
    code, opaque, flag, version = numbers
    return RemotingCommand(
        code,
        opaque,
        flag,
        fields,
        body,
        found.get("remark"),
        version,
        JSON_FORM,
        str(found.get("language", "")),
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _decode_binary(head: memoryview, body: bytes) -> RemotingCommand:
    code, language, version, opaque, flag, size = _HEAD.unpack_from(head)
    at = _HEAD.size
    remark, at = _string(head, at, size) if size else (None, at)
    left = _I32.unpack_from(head, at)[0]
    at += _I32.size
    end = at + left
    if left < 0 or end > len(head):
        raise BadFrame(f"fields of {left} bytes in a header of {len(head)}")
    fields: dict[str, str] = {}
    while at < end:
        name, at = _string(head, at + _I16.size, _I16.unpack_from(head, at)[0])
        fields[name], at = _string(head, at + _I32.size, _I32.unpack_from(head, at)[0])
    if at != end:
        raise BadFrame("a field passes the end of the fields")
    return RemotingCommand(
        code, opaque, flag, fields, body, remark, version, BINARY_FORM, str(language)
    )


def _string(head: memoryview, start: int, size: int) -> tuple[str, int]:
    end = start + size
    if size < 0 or end > len(head):
        raise BadFrame(f"a string of {size} bytes at {start} of a header of {len(head)}")
    return str(head[start:end], "utf-8"), end


_DECODERS: Final = {JSON_FORM: _decode_json, BINARY_FORM: _decode_binary}


def encode_frame(command: RemotingCommand) -> bytes:
    """The whole frame of ``command``, its length included."""
    head = _json_header(command) if command.form == JSON_FORM else _binary_header(command)
    lengths = _LENGTHS.pack(4 + len(head) + len(command.body), command.form << 24 | len(head))
    return b"".join((lengths, head, command.body))


def _json_header(command: RemotingCommand) -> bytes:
    content: dict[str, Any] = {
        "code": command.code,
        "extFields": command.fields,
        "flag": command.flag,
        "language": "JAVA",
        "opaque": command.opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": command.version,
    }
    if command.remark is not None:
        content["remark"] = command.remark
    return _encode_json(content).encode("utf-8", "replace")


def _binary_header(command: RemotingCommand) -> bytes:
    remark = (command.remark or "").encode()
    parts: list[bytes] = []
    for name, value in command.fields.items():
        left, right = name.encode(), value.encode()
        parts += (_I16.pack(len(left)), left, _I32.pack(len(right)), right)
    fields = b"".join(parts)
    head = _HEAD.pack(command.code, 0, command.version, command.opaque, command.flag, len(remark))
    return b"".join((head, remark, _I32.pack(len(fields)), fields))
