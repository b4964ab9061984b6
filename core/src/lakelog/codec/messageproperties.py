"""The property string of a message to be put: its tags, its keys, then its further properties."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.codec.limits import illegal
from lakelog.codec.losttext import SECTOR_BYTES
from lakelog.codec.recordcrc import is_sealed, without_seal
from lakelog.layout import PROPERTY_SEPARATOR
from lakelog.message import PropertiesLike
from lakelog.properties import KEYS, TAGS, encode_properties, join_keys

Keys = str | Sequence[str] | None


def message_properties(tags: str | None, keys: Keys, properties: PropertiesLike | None) -> bytes:
    """The encoded properties of one message."""
    if properties:
        return _with_more(tags, keys, properties)
    if type(tags) is str and type(keys) is str and tags.isprintable() and keys.isprintable():
        # The common case at a quarter of the cost: separators are not printable.
        return f"TAGS\x01{tags}\x02KEYS\x01{keys}\x02".encode()
    if tags is None and keys is None:
        return b""
    return _encoded(_named(tags, keys))


def _with_more(tags: str | None, keys: Keys, properties: PropertiesLike) -> bytes:
    if isinstance(properties, bytes | bytearray | memoryview):
        return _as_given(tags, keys, bytes(properties))
    try:
        named = _named(tags, keys) | dict(properties)
    except (ValueError, TypeError):
        raise illegal("properties must be a mapping of names to values, or bytes") from None
    return _unsealed(_encoded(named))


def _encoded(named: dict[str, str]) -> bytes:
    try:
        return encode_properties(named)
    except (ValueError, TypeError) as error:
        raise illegal(str(error)) from None


def _as_given(tags: str | None, keys: Keys, properties: bytes) -> bytes:
    if tags is not None or keys is not None:
        raise illegal("properties given as bytes are kept as they are; put tags and keys into them")
    return _unsealed(properties)


def _unsealed(properties: bytes) -> bytes:
    kept = without_seal(properties)
    if is_sealed(kept):
        raise illegal("the last property would pass for the record checksum, __CRC32#")
    if kept.endswith(b"\x00") or bytes(SECTOR_BYTES) in kept:
        raise illegal(
            f"properties that end with a zero byte, or hold {SECTOR_BYTES} of them in a row, would "
            "pass for a lost sector"
        )
    return kept


def _named(tags: str | None, keys: Keys) -> dict[str, str]:
    named = {}
    if tags is not None:
        named[TAGS] = tags
    if keys is not None:
        named[KEYS] = join_keys(keys)
    return named


def ended(properties: bytes) -> bytes:
    """``properties`` so that another one can follow."""
    if properties and not properties.endswith(PROPERTY_SEPARATOR):
        return properties + PROPERTY_SEPARATOR
    return properties


def column_properties(
    tags: Sequence[str | None],
    keys: Sequence[Keys],
    properties: Sequence[PropertiesLike | None],
) -> list[bytes]:
    """The encoded properties of many messages."""
    if any(properties) or not _are_printable(tags) or not _are_printable(keys):
        return list(map(message_properties, tags, keys, properties))
    return [
        f"TAGS\x01{tag}\x02KEYS\x01{key}\x02".encode() for tag, key in zip(tags, keys, strict=True)
    ]


def _are_printable(texts: Sequence[Keys]) -> bool:
    """Whether all of them are strings without anything odd in them."""
    try:
        return "".join(texts).isprintable()  # type: ignore[arg-type]  # join tells which they are
    except TypeError:
        return False
