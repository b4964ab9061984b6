"""Remoting frames: ``i32 length | i8 form, i24 header length | header | body``, big-endian.

The length counts all bytes after itself. A header of form 0 is JSON, a header of form 1 is binary:
``i16 code | i8 language | i16 version | i32 opaque | i32 flag | i32 length, remark | i32 length,
(i16 length, name | i32 length, value)*``. A response has the form of its request. Source: RocketMQ
5.3.3, ``RemotingCommand`` and ``RocketMQSerializable``.

Bodies of many requests are JSON, and are read within limits.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any, Final

import attrs

from lakelog_broker.codes import Invalid, LimitExceeded, check_limit
from lakelog_rocketmq.fastjson import encode

JSON_FORM: Final = 0
BINARY_FORM: Final = 1
RESPONSE_FLAG: Final = 1
ONE_WAY_FLAG: Final = 2
VERSION: Final = 479
"""The ordinal of RocketMQ 5.3.3 in ``MQVersion``."""
MAX_FRAME_BYTES: Final = 16 << 20
"""RocketMQ's ``com.rocketmq.remoting.frameMaxLength``."""
MAX_JSON_BYTES: Final = 1 << 20
"""Largest accepted body; the largest one of a client is a heartbeat with many groups."""
MAX_JSON_DEPTH: Final = 32
"""Deepest accepted nesting of arrays and objects; RocketMQ's bodies have 5 levels."""
_HEAD: Final = struct.Struct(">hBhiii")  # code, language, version, opaque, flag, remark length
_I32: Final = struct.Struct(">i")
_I16: Final = struct.Struct(">h")
_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_LENGTHS: Final = struct.Struct(">iI")
_scan_json: Final = json.JSONDecoder().raw_decode
_STRINGS: Final = {str}
_JSON_HEADER: Final = (
    '{"code":%d,%s"flag":%d,"language":"JAVA","opaque":%d%s,'
    '"serializeTypeCurrentRPC":"JSON","version":%d}'
)


class BadFrame(ValueError):
    """Bytes of a peer are no frame; its connection is closed."""


@attrs.define(slots=True, eq=False)
class RemotingCommand:
    """A request or a response.

    :ivar code: a ``RequestCode`` or ``ResponseCode``
    :ivar opaque: the number of a request; its response has the same number
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
        """Whether this is a response."""
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_one_way(self) -> bool:
        """Whether the sender expects no response."""
        return bool(self.flag & ONE_WAY_FLAG)

    def response(
        self, code: int = 0, remark: str | None = None, body: bytes = b"", **fields: object
    ) -> RemotingCommand:
        """Make a response to this request; values of ``fields`` are converted to strings."""
        texts = {
            name: value if type(value) is str else str(value) for name, value in fields.items()
        }
        return RemotingCommand(
            code, self.opaque, RESPONSE_FLAG, texts, body, remark, VERSION, self.form
        )

    def json(self, content: object, remark: str | None = None) -> RemotingCommand:
        """Make a successful response with a JSON body."""
        return self.response(0, remark, encode(content))

    def content(self) -> dict[str, Any]:
        """The body of a request, a JSON object.

        Raises :class:`Refused`, and :class:`LimitExceeded` for a body that is too large or too
        deep.
        """
        check_limit(len(self.body), MAX_JSON_BYTES, "a body of {} bytes")
        try:
            content = json.loads(self.body)
        except RecursionError:
            raise _too_deep() from None
        except ValueError as error:
            raise Invalid(f"the body is no JSON: {error}") from None
        if not isinstance(content, dict):
            raise Invalid("the body is no JSON object")
        _check_depth(content)
        return content


def _check_depth(content: Any) -> None:
    inner = [content]
    for _ in range(MAX_JSON_DEPTH):
        values = [each.values() if isinstance(each, dict) else each for each in inner]
        inner = [each for many in values for each in many if isinstance(each, dict | list)]
        if not inner:
            return
    raise _too_deep()


def _too_deep() -> LimitExceeded:
    return LimitExceeded(f"the body has more than {MAX_JSON_DEPTH} arrays and objects in a row")


def queue_object(broker: str, topic: str, queue_id: int) -> dict[str, Any]:
    """The JSON object of RocketMQ's ``MessageQueue``."""
    return {"brokerName": broker, "queueId": queue_id, "topic": topic}


def decode_frame(frame: bytes) -> RemotingCommand:
    """Decode a frame without its first length field; raises :class:`BadFrame`."""
    if len(frame) < _I32.size:
        raise BadFrame(f"a frame of {len(frame)} bytes has no header length")
    (word,) = _I32.unpack_from(frame)
    form, size = (word >> 24) & 0xFF, word & 0xFFFFFF
    if size > len(frame) - _I32.size:
        raise BadFrame(f"a header of {size} bytes in a frame of {len(frame)}")
    head, body = frame[4 : 4 + size], frame[4 + size :]
    if form not in _DECODERS:
        raise BadFrame(f"unknown form {form} of a header")
    try:
        return _DECODERS[form](head, body)
    except BadFrame:
        raise
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadFrame(f"a damaged header: {error!r}") from error


def _decode_json(head: bytes, body: bytes) -> RemotingCommand:
    found = _loaded(head)
    fields = found.get("extFields") or {}
    code, opaque = found["code"], found.get("opaque", 0)
    flag, version = found.get("flag", 0), found.get("version", 0)
    if not (type(code) is type(opaque) is type(flag) is type(version) is int):
        raise BadFrame("code, opaque, flag and version of a header must be integers")
    if not _STRINGS.issuperset(map(type, fields.values())):
        fields = {name: _text(value) for name, value in fields.items() if value is not None}
    remark, language = found.get("remark"), str(found.get("language", ""))
    return RemotingCommand(code, opaque, flag, fields, body, remark, version, JSON_FORM, language)


def _loaded(head: bytes) -> Any:
    """As ``json.loads``, in half the time for a header."""
    try:
        text = head.decode()
        found, end = _scan_json(text)
    except ValueError:
        return json.loads(head)
    return found if end == len(text) else json.loads(head)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else encode(value).decode()


def _decode_binary(head: bytes, body: bytes) -> RemotingCommand:
    code, language, version, opaque, flag, size = _HEAD.unpack_from(head)
    at = _HEAD.size
    end = at + size
    if size < 0 or end > len(head):
        raise BadFrame(f"a string of {size} bytes at {at} of a header of {len(head)}")
    remark, at = head[at:end].decode() if size else None, end
    left = _I32.unpack_from(head, at)[0]
    at += _I32.size
    end = at + left
    if left < 0 or end > len(head):
        raise BadFrame(f"fields of {left} bytes in a header of {len(head)}")
    fields: dict[str, str] = {}
    while at < end:  # lengths are read as unsigned: a negative one is then too large
        start = at + 2 + _U16.unpack_from(head, at)[0]
        stop = start + 4 + _U32.unpack_from(head, start)[0]
        if stop > end:
            raise BadFrame("a field passes the end of the fields")
        fields[head[at + 2 : start].decode()] = head[start + 4 : stop].decode()
        at = stop
    return RemotingCommand(
        code, opaque, flag, fields, body, remark, version, BINARY_FORM, str(language)
    )


_DECODERS: Final = {JSON_FORM: _decode_json, BINARY_FORM: _decode_binary}


def encode_frame(command: RemotingCommand) -> bytes:
    """Encode the whole frame of ``command``, including its length."""
    head = _json_header(command) if command.form == JSON_FORM else _binary_header(command)
    return framed(head, command.form, command.body)


def framed(head: bytes, form: int = JSON_FORM, body: bytes = b"") -> bytes:
    """Build the whole frame with the encoded header ``head``."""
    lengths = _LENGTHS.pack(4 + len(head) + len(body), form << 24 | len(head))
    return b"".join((lengths, head, body))


def answer_template(fields: str) -> bytes:
    """The JSON header of a successful response, as a ``%`` format of field values and ``opaque``.

    :param fields: the ``extFields`` as JSON text, with ``%`` conversions for their values
    """
    header = _JSON_HEADER.replace('"opaque":%d%s', '"opaque":%%d')
    values = 0, f'"extFields":{{{fields}}},', RESPONSE_FLAG, VERSION
    return (header % values).encode("utf-8", "replace")


def _json_header(
    command: RemotingCommand, quoted: Callable[[str], str] = encode_basestring
) -> bytes:
    # fastjson's form of rare characters takes several times as long, and so does json.dumps.
    fields = ",".join([f"{quoted(name)}:{quoted(text)}" for name, text in command.fields.items()])
    fields = fields and f'"extFields":{{{fields}}},'
    remark = "" if command.remark is None else f',"remark":{quoted(command.remark)}'
    values = command.code, fields, command.flag, command.opaque, remark, command.version
    head = _JSON_HEADER % values
    is_rare = not head.isascii() or "\\u" in head or "\x7f" in head
    if is_rare and quoted is encode_basestring:
        return _json_header(command, _quoted)
    return head.encode("utf-8", "replace")


def _quoted(text: str) -> str:
    return encode(text).decode()


def _binary_header(command: RemotingCommand) -> bytes:
    remark = (command.remark or "").encode()
    parts: list[bytes] = []
    for name, value in command.fields.items():
        text = value.encode()
        parts += (_packed_name(name), _I32.pack(len(text)), text)
    fields = b"".join(parts)
    head = _HEAD.pack(command.code, 0, command.version, command.opaque, command.flag, len(remark))
    return b"".join((head, remark, _I32.pack(len(fields)), fields))


@lru_cache(maxsize=1024)
def _packed_name(name: str) -> bytes:
    encoded = name.encode()
    return _I16.pack(len(encoded)) + encoded
