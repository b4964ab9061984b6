"""Parses JSON as fastjson writes it, with unquoted keys.

fastjson writes integer keys of a map without quotes, ``{0:500,1:490}``, which is not JSON. The text
is split into strings, bare words and punctuation; a bare word before a colon is quoted. Strings are
never changed.
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
    """The object in a file; the last value wins if a key repeats, as in fastjson.

    Raises ``ValueError`` if the content is anything else.

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
    """Quote every bare key in ``text``."""
    return _TOKEN.sub(_mended, text)


def _mended(token: re.Match[str]) -> str:
    key = token["key"]
    return token[0] if key is None else json.dumps(key)
