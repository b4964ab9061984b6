"""Encodes the property string of a message: tags, keys, then further properties."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog_format.codec.frame import SECTOR_BYTES
from lakelog_format.codec.limits import illegal
from lakelog_format.codec.record_crc import is_sealed, without_seal
from lakelog_format.fields.layout import PROPERTY_SEPARATOR
from lakelog_format.fields.properties import KEYS, TAGS, check_tags, encode_properties, join_keys
from lakelog_format.message import PropertiesLike

Keys = str | Sequence[str] | None


def message_properties(tags: str | None, keys: Keys, properties: PropertiesLike | None) -> bytes:
    """The encoded properties of one message.

    Raises :class:`~lakelog_format.errors.IllegalMessage` for values that a record cannot hold.
    """
    if properties:
        return _with_more(tags, keys, properties)
    if tags is None and keys is None:
        return b""
    return _encoded(_named(tags, keys))


def _with_more(tags: str | None, keys: Keys, properties: PropertiesLike) -> bytes:
    if isinstance(properties, bytes | bytearray | memoryview):
        return _as_given(tags, keys, bytes(properties))
    try:
        more = dict(properties)
    except (ValueError, TypeError):
        raise illegal(
            f"properties is {properties!r:.80}; give a mapping of names to values, or bytes"
        ) from None
    named = _named(tags, keys)
    for name, value in () if named.keys().isdisjoint(more) else named.items():
        if more.get(name, value) != value:
            field = name.lower()
            raise illegal(
                f"{field} is {value!r}, and properties has {name} {more[name]!r:.80}; give one of "
                "them"
            )
    return _unsealed(_encoded(named | more))


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
        raise illegal("the last property would be taken for the record checksum, __CRC32#")
    if kept.endswith(b"\x00") or bytes(SECTOR_BYTES) in kept:
        raise illegal(
            f"properties that end with a zero byte, or hold {SECTOR_BYTES} of them in a row, would "
            "be taken for a lost sector"
        )
    return kept


def _named(tags: str | None, keys: Keys) -> dict[str, str]:
    named = {}
    try:
        if tags is not None:
            named[TAGS] = check_tags(tags)
        if keys is not None:
            named[KEYS] = join_keys(keys)
    except (TypeError, ValueError) as error:
        raise illegal(str(error)) from None
    return named


def ended(properties: bytes) -> bytes:
    """``properties`` with a trailing separator, so that another property can follow."""
    if properties and not properties.endswith(PROPERTY_SEPARATOR):
        return properties + PROPERTY_SEPARATOR
    return properties
