"""The manifest entry of an archived segment; it exists only after the copy was verified.

One file with one line of JSON each, since object stores cannot append. Members: ``v`` 1, ``start``
(offset of its first byte in the log), ``size`` in bytes, ``sha256`` of all bytes, in hex.
"""

from __future__ import annotations

import json
import re
from typing import Final

import attrs

_VERSION: Final = 1
_SHA256: Final = re.compile("[0-9a-f]{64}")


@attrs.frozen
class ManifestEntry:
    """The entry of one segment.

    :ivar start: offset of its first byte in the log
    :ivar size: length in bytes
    :ivar sha256: checksum of all its bytes, in hex
    """

    start: int
    size: int
    sha256: str


def to_bytes(line: ManifestEntry) -> bytes:
    """Write one line of JSON."""
    return json.dumps({"v": _VERSION, **attrs.asdict(line)}).encode() + b"\n"


def from_bytes(content: bytes) -> ManifestEntry | None:
    """Parse an entry; ``None`` for anything else, such as an incomplete one."""
    try:
        match json.loads(content):
            case {"v": 1, "start": int(start), "size": int(size), "sha256": str(sha256)}:
                return ManifestEntry(start, size, sha256) if _SHA256.fullmatch(sha256) else None
    except ValueError:
        pass
    return None
