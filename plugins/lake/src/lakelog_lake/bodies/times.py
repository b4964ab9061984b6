"""Parses times: RFC 3339 and similar ISO 8601 forms, to the microsecond.

Digits behind the microsecond are cut off, as Java and Go write nanoseconds. A time without a zone
is in UTC, as everywhere in this package. Leap seconds are invalid.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_TIMESTAMP: Final = pa.timestamp("us", "UTC")
_TOO_FINE: Final = r"(\.\d{6})\d+"
_WITHOUT_ZONE: Final = r"^\d{4}-\d\d-\d\d([T ]\d\d(:\d\d){0,2}(\.\d+)?)?$"


def timestamps(texts: pa.Array) -> pa.Array:
    """Timestamps in UTC; raises :class:`pyarrow.ArrowInvalid` for an invalid text."""
    try:
        return texts.cast(_TIMESTAMP)
    except pa.ArrowInvalid:
        pass
    upper = pc.ascii_upper(texts)
    fine = pc.replace_substring_regex(upper, pattern=_TOO_FINE, replacement=r"\1")
    bare = pc.match_substring_regex(fine, pattern=_WITHOUT_ZONE)
    with_zone = pc.if_else(bare, None, fine).cast(_TIMESTAMP)
    without = pc.if_else(bare, fine, None).cast(pa.timestamp("us")).cast(_TIMESTAMP)
    return pc.coalesce(with_zone, without)


def dates(texts: pa.Array) -> pa.Array:
    """Days, ``YYYY-MM-DD``; raises :class:`pyarrow.ArrowInvalid` for an invalid text."""
    return texts.cast(pa.date32())
