"""Why a body is not the JSON that it should be: slow, exact, one body at a time.

What is named here is refused by Arrow's reader too, so that no row's fate depends on the rows
beside it; what the reader refuses and nothing here names keeps the reader's words.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import date, datetime
from typing import Any, Final

import pyarrow as pa

from lakelog_spark.landing.bodies import times
from lakelog_spark.landing.bodies.jsonread import has_no_number
from lakelog_spark.landing.bodies.shapes import Shape

_BITS: Final = {"int": 32, "bigint": 64}
_CALLED: Final = {
    **dict.fromkeys(_BITS, "an integer"),
    **dict.fromkeys(("float", "double"), "a number"),
    "struct": "an object",
    "array": "an array",
    "boolean": "a boolean",
    "string": "a string",
    "timestamp": "a string with a time (ISO 8601)",
    "date": "a string with a date (YYYY-MM-DD)",
}
_PYTHON: Final[dict[str, type]] = {
    **dict.fromkeys(_BITS, int),
    "struct": dict,
    "array": list,
    "boolean": bool,
    **dict.fromkeys(("string", "timestamp", "date"), str),
}
_SHOWN: Final = 40
_ESCAPED: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_PYTHON_TIMES: Final[dict[str, Any]] = {
    "timestamp": (
        re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z", re.ASCII),
        datetime.fromisoformat,
    ),
    "date": (re.compile(r"\d{4}-\d\d-\d\d", re.ASCII), date.fromisoformat),
}


def fault(body: bytes, shape: Shape) -> str | None:
    """What is wrong with ``body``, which is UTF-8 and braced, and where; ``None`` if nothing is."""
    text = body.decode()
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        return f"byte {len(text[: error.pos].encode())}: {error.msg}"
    except _Constant as error:
        return f"{error} is no JSON"
    except (RecursionError, ValueError):  # nested too deep, or too many digits, for Python
        return "NaN or Inf may stand in it" if has_no_number(body) else None
    return _fault(value, shape, "") or (_surrogate(value) if _ESCAPED.search(body) else None)


def _surrogate(value: Any) -> str | None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "half of a surrogate pair is no text"
    except RecursionError:
        pass
    return None


class _Constant(Exception):
    """``NaN``, ``Infinity``: Python reads them, and JSON does not have them."""


def _no_constant(name: str) -> Any:
    raise _Constant(name)


class _Twice(dict[str, Any]):
    """An object that gives some keys several times."""

    keys_twice: frozenset[str]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    counted = Counter(key for key, _ in pairs)
    twice = _Twice(made)
    twice.keys_twice = frozenset(key for key, count in counted.items() if count > 1)
    return twice


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_object)


def _fault(value: Any, shape: Shape, at: str) -> str | None:
    if value is None:
        return f"{at} is required, and is null or missing" if shape.required else None
    if not _fits(value, shape.kind):
        return f"{at or '/'}: {_shown(value)} is not {_CALLED[shape.kind]}"
    if isinstance(value, _Twice):
        again = next((f.key for f in shape.fields if f.key in value.keys_twice), None)
        if again is not None:
            return f"{at}/{_step(again)} is there more than once"
    if shape.kind == "struct":
        found = (_fault(value.get(f.key), f, f"{at}/{_step(f.key)}") for f in shape.fields)
    elif shape.kind == "array":
        found = (_fault(each, shape.fields[0], f"{at}/{n}") for n, each in enumerate(value))
    else:
        return _bound(value, shape.kind, at)
    return next((each for each in found if each), None)


def _fits(value: Any, kind: str) -> bool:
    if kind in ("float", "double"):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, _PYTHON[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _bound(value: Any, kind: str, at: str) -> str | None:
    bits = _BITS.get(kind)
    if bits is not None and not -(1 << bits - 1) <= value < 1 << bits - 1:
        return f"{at}: {_shown(value)} does not fit {bits} bits"
    if kind in _PYTHON_TIMES and _plainly(value, kind):
        return None
    make = {"timestamp": times.timestamps, "date": times.dates}.get(kind)
    if make is not None:
        try:
            make(pa.array([value], pa.string()))
        except (pa.ArrowInvalid, UnicodeEncodeError):
            return f"{at}: {_shown(value)} is not {_CALLED[kind]}"
    return None


def _plainly(value: str, kind: str) -> bool:
    """Whether a time is right at a glance, which is ten times as fast as to ask Arrow."""
    pattern, make = _PYTHON_TIMES[kind]
    try:
        return pattern.fullmatch(value) is not None and make(value) is not None
    except ValueError:
        return False


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _step(key: str) -> str:
    """``key`` in a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")
