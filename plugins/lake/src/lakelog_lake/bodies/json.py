"""JSON bodies as typed columns.

Each body is one object. Fields that the schema does not name are ignored; a missing field is null.
Types are strict: ``"1"`` and ``1.0`` are not integers, and a number beyond 64 bits or a repeated
key of the schema makes a body invalid. The schema file is a JSON Schema (:mod:`.json_schema`) or,
if it does not begin with ``{``, a Spark DDL (:mod:`.ddl`).

Bodies are read in steps by Arrow's reader. If it rejects a step, the step is split around the
invalid body, or in quarters if the reader does not identify that body. Once a few bodies are left,
they are checked one by one. So an invalid body costs the others little, and no result depends on
neighbouring bodies.

A slow, exact check of single bodies finds the cause. Arrow's reader also rejects every body that
this check rejects. For a fault that only the reader finds, the reader's text is used.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa

from lakelog_lake.bodies import ddl, json_schema, times
from lakelog_lake.bodies.base import Parsed, parsed
from lakelog_lake.bodies.json_read import Unread, has_no_number, joined, not_objects, read
from lakelog_lake.bodies.json_schema import FieldShape, table_type
from lakelog_lake.bodies.names import refused
from lakelog_lake.bodies.opaque import not_utf8, without

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


def fault(body: bytes, shape: FieldShape) -> str | None:
    """The fault of ``body`` and its place; ``None`` without a fault.

    :param body: UTF-8 that begins with ``{`` and ends with ``}``
    """
    text = body.decode()
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        return f"byte {len(text[: error.pos].encode())}: {error.msg}"
    except _Constant as error:
        return f"{error} is not JSON"
    except (RecursionError, ValueError):  # too deep, or too many digits, for Python
        return "it may contain NaN or Inf" if has_no_number(body) else None
    return _fault(value, shape, "") or (_surrogate(value) if _ESCAPED.search(body) else None)


def _surrogate(value: Any) -> str | None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "half of a surrogate pair is not text"
    except RecursionError:
        pass
    return None


class _Constant(Exception):
    """``NaN`` or ``Infinity``, which Python accepts and JSON does not have."""


def _no_constant(name: str) -> Any:
    raise _Constant(name)


class _Twice(dict[str, Any]):
    """An object with repeated keys."""

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


def _fault(value: Any, shape: FieldShape, at: str) -> str | None:
    if value is None:
        return f"{at} is required, and is null or missing" if shape.required else None
    if not _fits(value, shape.kind):
        return f"{at or '/'}: {_shown(value)} is not {_CALLED[shape.kind]}"
    if isinstance(value, _Twice):
        again = next((f.key for f in shape.fields if f.key in value.keys_twice), None)
        if again is not None:
            return f"{at}/{_step(again)} occurs more than once"
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
    """A quick check for valid times, ten times as fast as Arrow's parser."""
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
    """Escape ``key`` for a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


_STEP_ROWS: Final = 1024
_STEP_BYTES: Final = 4 << 20
_FEW: Final = 16
"""Number of bodies that are checked one by one after the fast reader rejects them."""


@attrs.frozen(slots=False)
class Json:
    """A parser of JSON bodies.

    :ivar shape: the expected fields of a body
    """

    shape: FieldShape

    @classmethod
    def of(cls, text: str, source: str) -> Json:
        """Parse the schema ``text``; raises :class:`~lakelog.errors.SettingsError`."""
        try:
            if text.lstrip().startswith("{"):
                return cls(json_schema.shape_of(json.loads(text)))
            return cls(ddl.shape_of(text))
        except (ValueError, RecursionError) as error:
            raise refused(f"not a supported schema: {error}", source) from error

    @cached_property
    def fields(self) -> pa.Schema:
        """A column for each field of the body."""
        return pa.schema([(each.name, table_type(each)) for each in self.shape.fields])

    def parse(self, bodies: pa.Array, rows: pa.RecordBatch) -> Parsed:  # noqa: ARG002  # a parser is given both
        """Parse bodies that conform to the schema."""
        faults = not_utf8(bodies)
        texts, kept = without(bodies, faults)
        for row, why in not_objects(texts).items():
            faults[int(kept[row])] = why
        texts, kept = without(bodies, faults)
        parts = [
            batch
            for first, behind in _steps(texts)
            for batch in self._step(texts[first:behind], kept[first:behind], faults)
        ]
        return parsed(self.fields, parts, faults, len(bodies))

    def _step(
        self, bodies: pa.Array, rows: np.ndarray, faults: dict[int, str]
    ) -> list[pa.RecordBatch]:
        """Parse some bodies with the indices ``rows``; adds errors to ``faults``."""
        if has_no_number(joined(bodies).to_pybytes()):
            return self._one_by_one(bodies, rows, faults)
        return self._read(bodies, rows, faults)

    def _read(
        self, bodies: pa.Array, rows: np.ndarray, faults: dict[int, str]
    ) -> list[pa.RecordBatch]:
        """Parse the bodies around invalid ones; each part is decided independently."""
        if not len(bodies):
            return []
        try:
            return [read(bodies, self.shape, self.fields)]
        except Unread as error:
            bad = error.row
        if len(bodies) <= _FEW:
            return self._one_by_one(bodies, rows, faults)
        cuts = _around(bad, len(bodies))
        return [
            part
            for first, behind in pairwise((0, *cuts, len(bodies)))
            for part in self._read(bodies[first:behind], rows[first:behind], faults)
        ]

    def _one_by_one(
        self, bodies: pa.Array, rows: np.ndarray, faults: dict[int, str]
    ) -> list[pa.RecordBatch]:
        found = ((row, fault(body.as_py(), self.shape)) for row, body in enumerate(bodies))
        bad = {row: why for row, why in found if why is not None}
        faults.update({int(rows[row]): why for row, why in bad.items()})
        left, kept = without(bodies, bad)
        return self._halves(left, rows[kept], faults)

    def _halves(
        self, bodies: pa.Array, rows: np.ndarray, faults: dict[int, str]
    ) -> list[pa.RecordBatch]:
        """Split bodies whose faults only Arrow's reader finds."""
        if not len(bodies):
            return []
        try:
            return [read(bodies, self.shape, self.fields)]
        except Unread as error:
            if len(bodies) == 1:
                faults[int(rows[0])] = str(error)
                return []
        half = len(bodies) // 2
        return [
            *self._halves(bodies[:half], rows[:half], faults),
            *self._halves(bodies[half:], rows[half:], faults),
        ]


def _around(bad: int | None, count: int) -> tuple[int, ...]:
    """Where to split ``count`` bodies, to separate the body that may be invalid."""
    if bad is None or bad >= count:
        return (count // 4, count // 2, count - count // 4)
    return (bad, min(bad + _FEW, count))


def _steps(bodies: pa.Array) -> Iterator[tuple[int, int]]:
    """Split bodies into runs of bounded count and size."""
    import pyarrow.compute as pc

    ends = np.cumsum(pc.binary_length(bodies).to_numpy(zero_copy_only=False), dtype=np.int64)
    first = 0
    while first < len(bodies):
        before = int(ends[first - 1]) if first else 0
        behind = int(np.searchsorted(ends, before + _STEP_BYTES, side="right"))
        behind = max(first + 1, min(behind, first + _STEP_ROWS))
        yield first, behind
        first = behind
