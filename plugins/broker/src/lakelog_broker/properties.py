"""Single properties of an encoded property string, without decoding all of it.

The format is ``name 0x01 value 0x02``, repeated, in UTF-8; a client leaves out the last byte.
"""

from __future__ import annotations


def property_value(properties: bytes, name: bytes) -> bytes | None:
    r"""The value of a property; ``None`` if it is absent.

    >>> property_value(b"KEYS\x01a\x02TAGS\x01b\x02", b"TAGS")
    b'b'
    """
    head = name + b"\x01"
    if properties.startswith(head):
        start = len(head)
    else:
        at = properties.find(b"\x02" + head)
        if at < 0:
            return None
        start = at + 1 + len(head)
    end = properties.find(b"\x02", start)
    return properties[start:] if end < 0 else properties[start:end]


def with_properties(properties: bytes, without: tuple[bytes, ...] = (), **added: str) -> bytes:
    r"""The property string without some properties, and with others at its end.

    >>> with_properties(b"A\x011\x02B\x012\x02", (b"A",), B="3")
    b'B\x013\x02'
    """
    removed = {*without, *(name.encode() for name in added)}
    kept = [
        each
        for each in properties.split(b"\x02")
        if each and each.partition(b"\x01")[0] not in removed
    ]
    kept += [f"{name}\x01{value}".encode() for name, value in added.items()]
    return b"".join(each + b"\x02" for each in kept)
