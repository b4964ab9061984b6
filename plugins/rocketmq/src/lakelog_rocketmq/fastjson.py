"""JSON as RocketMQ reads and writes it, by fastjson 1.2.83: bodies of requests, and files.

No blanks; integer keys of a map have no quotes, ``{0:500,1:490}``, which is not JSON; in a body, an
entry that is null is left out. In an indented file, an entry with an integer key begins no line.

To read, the text is split into strings, bare words and punctuation; a bare word before a colon is
quoted. Strings are never changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from functools import partial
from typing import Any, Final

_TOKEN: Final = re.compile(
    r'(?P<string>"[^"\\]*(?:\\.[^"\\]*)*")|(?P<key>[^\s"{}\[\]:,]+)(?=\s*:)|[^\s"{}\[\]:,]+',
    re.DOTALL,
)
_INTEGER: Final = re.compile(r"-?[0-9]+").fullmatch
_ESCAPED: Final = re.compile('[\x00-\x1f"\\\\\x7f-\x9f\u2028\u2029]')
_ESCAPED_FOR_BROWSERS: Final = re.compile(r'[\x00-\x1f"\\/\x7f-\U0010ffff]')
_SHORT: Final = {
    **{each: f"\\{each}" for each in '"\\/'},
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
}
_WITH_NUMBERS: Final = "offsetTable"
"""A map of this name has integer keys, or maps that have; as strings if they were read."""


class Entries(list[tuple[Any, Any]]):
    """A map whose keys are objects: pairs of a key and its value."""


def encode(content: object) -> bytes:
    """A body.

    >>> encode({"a": {0: "x"}, "b": None, "offsetTable": Entries([({"queueId": 0}, 7)])})
    b'{"a":{0:"x"},"offsetTable":{{"queueId":0}:7}}'
    """
    return _Writer(_ESCAPED).text(content).encode(errors="replace")


def encode_for_browsers(content: object) -> bytes:
    """A body in strict JSON, as fastjson's ``BrowserCompatible`` writes it."""
    return _Writer(_ESCAPED_FOR_BROWSERS, quotes_keys=True).text(content).encode()


def encode_file(content: object, *, bare_keys: bool) -> bytes:
    r"""A file, indented by tabs; entries that are null are kept.

    :param bare_keys: whether integer keys are written without quotes

    >>> encode_file({"offsetTable": {"T@g": {"0": 5, "1": 9}}}, bare_keys=True)
    b'{\n\t"offsetTable":{\n\t\t"T@g":{0:5,1:9\n\t\t}\n\t}\n}'
    """
    writer = _Writer(_ESCAPED, quotes_keys=not bare_keys, is_file=True)
    return writer.text(content, "\n").encode(errors="replace")


def has_bare_keys(content: bytes) -> bool:
    """Whether a key of the text is an integer without quotes."""
    tokens = _TOKEN.finditer(content.decode(errors="replace"))
    return any(_INTEGER(token["key"] or "") for token in tokens)


class _Writer:
    def __init__(
        self, escaped: re.Pattern[str], *, quotes_keys: bool = False, is_file: bool = False
    ) -> None:
        self._quoted = partial(escaped.sub, _escape)
        self._quotes_keys, self._is_file = quotes_keys, is_file

    def text(self, value: Any, line: str = "", has_numbers: bool = False) -> str:
        """The JSON of a value.

        :param line: the line break and the indentation before the end of a map
        :param has_numbers: whether texts of integers are written as integer keys
        """
        if isinstance(value, str):
            return f'"{self._quoted(value)}"'
        if isinstance(value, Entries):
            inner = (f"{self.text(key)}:{self.text(each)}" for key, each in value)
            return "{" + ",".join(inner) + "}"
        if isinstance(value, Mapping):
            return self._map(value, line, has_numbers)
        if isinstance(value, list | tuple):
            return "[" + ",".join([self.text(each, line) for each in value]) + "]"
        return _number(value) if type(value) in (int, float) else json.dumps(value)

    def _map(self, value: Mapping[Any, Any], line: str, has_numbers: bool) -> str:
        inner, found = line and line + "\t", list[str]()
        for key, each in value.items():
            if each is None and not self._is_file:
                continue
            is_bare = isinstance(key, int) or bool(has_numbers and _INTEGER(key))
            is_quoted = not is_bare or self._quotes_keys
            name = f'"{self._quoted(str(key))}"' if is_quoted else str(key)
            below = self.text(each, inner, has_numbers or key == _WITH_NUMBERS)
            found.append(f"{inner if is_quoted else ''}{name}:{below}")
        return "{" + ",".join(found) + (line if found else "") + "}"


def _number(value: float) -> str:
    """As Java writes it.

    >>> _number(0.25), _number(2e-05)
    ('0.25', '2.0E-5')
    """
    if isinstance(value, int) or value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, _ = (found := Decimal(repr(value))).as_tuple()
    text = "".join(map(str, digits)).rstrip("0")
    return f"{'-' * sign}{text[0]}.{text[1:] or '0'}E{found.adjusted()}"


def _escape(found: re.Match[str]) -> str:
    short = _SHORT.get(found[0])
    if short is not None:
        return short
    units = found[0].encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def parse_object(content: bytes) -> dict[str, Any]:
    """The object in a file or a body; of a key that repeats the last value counts, as in fastjson.

    Raises ``ValueError`` if the content is anything else.

    >>> parse_object(b'{"offsetTable":{"T@g":{0:500,-1:490}},"note":"{2:3}"}')
    {'offsetTable': {'T@g': {'0': 500, '-1': 490}}, 'note': '{2:3}'}
    """
    try:
        found = json.loads(_TOKEN.sub(_quoted, content.decode()))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError(f"it holds {type(found).__name__}, not an object")
    return found


def _quoted(token: re.Match[str]) -> str:
    key = token["key"]
    return token[0] if key is None else json.dumps(key)
