"""Parses messages from lines of JSON, with the field names of ``lakelog.Message``.

A binary body is given as ``body_base64``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

import attrs

from lakelog.errors import SettingsError
from lakelog.message import Message

BASE64: Final = "body_base64"
FIELDS: Final = {each.name for each in attrs.fields(Message)} | {BASE64}


def messages_of(lines: Iterable[str | bytes], defaults: Message, source: str) -> Iterator[Message]:
    """Yield one message per non-empty line; missing fields are taken from ``defaults``."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _message(line, defaults, f"{source}, line {number}")


def _message(line: str | bytes, defaults: Message, place: str) -> Message:
    fields = _fields(line, place)
    unknown = sorted(set(fields) - FIELDS)
    if unknown:
        what = f"a message has no {unknown[0]!r}; known are {', '.join(sorted(FIELDS))}"
        raise SettingsError(what, source=place)
    return attrs.evolve(defaults, **_with_body(fields, place))


def _fields(line: str | bytes, place: str) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise SettingsError(f"this is no JSON: {error}", source=place) from None
    if not isinstance(fields, dict):
        raise SettingsError("this is no JSON object", source=place)
    return fields


def _with_body(fields: dict[str, Any], place: str) -> dict[str, Any]:
    """The fields of a message, with the body as bytes."""
    fields = dict(fields)
    packed, text = fields.pop(BASE64, None), fields.get("body")
    if packed is not None and text is not None:
        raise SettingsError(f"give body or {BASE64}, not both", source=place)
    try:
        if packed is not None:
            fields["body"] = base64.b64decode(packed, validate=True)
        elif text is not None:
            fields["body"] = text.encode()
    except (ValueError, TypeError, AttributeError):
        raise SettingsError(f"its body is no text, or {BASE64} no base64", source=place) from None
    return fields
