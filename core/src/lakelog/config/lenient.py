"""Reads what fastjson writes: JSON in which keys may lack their quotes.

fastjson writes the integer keys of a map as they are, ``{0:500,1:490}``, which is no JSON. The
text is cut into strings, bare words and punctuation; a bare word before a colon gets its quotes.
The inside of a string is never touched.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

_TOKEN: Final = re.compile(
    r'(?P<string>"[^"\\]*(?:\\.[^"\\]*)*")|(?P<key>[^\s"{}\[\]:,]+)(?=\s*:)|[^\s"{}\[\]:,]+',
    re.DOTALL,
)


def parse_object(content: bytes) -> dict[str, Any]:
    """The object that a file holds; of a key that repeats, the last value, as in fastjson.

    Raises ``ValueError`` for everything else.

    >>> parse_object(b'{"offsetTable":{"T@g":{0:500,-1:490}},"note":"{2:3}"}')
    {'offsetTable': {'T@g': {'0': 500, '-1': 490}}, 'note': '{2:3}'}
    """
    try:
        found = json.loads(quote_keys(content.decode()))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError(f"it holds {type(found).__name__}, not an object")
    return found


def quote_keys(text: str) -> str:
    """The same text with quotes around every bare key."""
    return _TOKEN.sub(_mended, text)


def _mended(token: re.Match[str]) -> str:
    key = token["key"]
    return token[0] if key is None else json.dumps(key)
