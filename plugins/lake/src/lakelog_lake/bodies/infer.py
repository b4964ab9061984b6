"""Infers a schema from existing bodies; a user reviews it, and passes its file to ``json:``.

No schema is inferred while messages land: two runs with different messages could get different
schemas. Fields without a single type (always null, numbers and strings, objects without fields) are
left out and listed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any, Final

import attrs
import pyarrow as pa

import lakelog
from lakelog.errors import SettingsError
from lakelog_lake.bodies import json_schema

_MOST_FIELDS: Final = 1000
_LONG: Final = range(-(1 << 63), 1 << 63)


@attrs.frozen
class Inferred:
    """The result of an inference.

    :ivar schema: a JSON Schema
    :ivar read: number of bodies that are JSON objects
    :ivar others: number of other bodies
    :ivar left_out: fields without a single type, with the reason, as ``/user/age: ...``
    """

    schema: dict[str, Any]
    read: int
    others: int
    left_out: tuple[str, ...]


def infer(bodies: Iterable[bytes], *, times: bool = True) -> Inferred:
    """Infer the schema of ``bodies``; raises :class:`ValueError` if there is none.

    :param times: whether a string that is a time, or a date, in every body becomes that type; a
        later body with another string is then invalid
    """
    seen, read, others = _Seen(), 0, 0
    for body in bodies:
        value = _object(body)
        if value is None:
            others += 1
            continue
        read += 1
        try:
            seen.add(value)
        except RecursionError:
            raise ValueError("a body is nested too deep") from None
        if seen.size() > _MOST_FIELDS:
            raise ValueError(
                f"more than {_MOST_FIELDS} fields: are keys of objects used as values? write "
                "a schema that leaves them out"
            )
    left_out: list[str] = []
    schema = seen.schema("", left_out, times=times)
    if schema is None:
        raise ValueError(f"none of {read + others} bodies is a JSON object with a typed field")
    return Inferred(schema, read, others, tuple(left_out))


def infer_topic(path: Path, topic: str, count: int, *, times: bool = True) -> Inferred:
    """Infer from the first ``count`` messages of a topic, taken evenly from its queues.

    Raises :class:`~lakelog.errors.SettingsError` if there is no schema.
    """
    try:
        with lakelog.open(path, mode="read") as store:
            found = infer(islice(_bodies(store, topic), count), times=times)
        json_schema.shape_of(found.schema)
    except ValueError as error:
        raise SettingsError(f"no schema of {topic} in {path}: {error}", key="--topic") from error
    return found


def _bodies(store: lakelog.Store, topic: str) -> Iterator[bytes]:
    queues = [store.read(topic, queue.queue_id) for queue in store.queues(topic)]
    messages = chain.from_iterable(zip_longest(*queues))
    return (bytes(message.body) for message in messages if message is not None)


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(body.decode())
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


@attrs.define
class _Seen:
    """The values of one field."""

    kinds: set[str] = attrs.field(factory=set)
    formats: set[str] = attrs.field(factory=lambda: {"date-time", "date"})
    fields: dict[str, _Seen] = attrs.field(factory=dict)
    element: _Seen | None = None

    def add(self, value: Any) -> None:
        if isinstance(value, dict):
            self.kinds.add("object")
            for key, each in value.items():
                self.fields.setdefault(key, _Seen()).add(each)
        elif isinstance(value, list):
            self.kinds.add("array")
            self.element = self.element or _Seen()
            for each in value:
                self.element.add(each)
        elif value is not None:
            self.kinds.add(_kind(value))
            if isinstance(value, str):
                self.formats = {each for each in self.formats if _is(value, each)}

    def size(self) -> int:
        inner = sum(each.size() for each in self.fields.values())
        return 1 + inner + (self.element.size() if self.element else 0)

    def schema(self, at: str, left_out: list[str], *, times: bool) -> dict[str, Any] | None:
        kinds = {"number"} if self.kinds == {"integer", "number"} else self.kinds
        if len(kinds) != 1:
            what = " or ".join(sorted(kinds)) or "always null"
            left_out.append(f"{at or '/'}: {what}")
            return None
        (kind,) = kinds
        if kind == "object":
            made = {
                key: each.schema(f"{at}/{key}", left_out, times=times)
                for key, each in self.fields.items()
            }
            typed = {key: each for key, each in made.items() if each is not None}
            return _some(typed, {"type": kind, "properties": typed}, at, left_out)
        if kind == "array" and self.element is not None:
            items = self.element.schema(f"{at}/0", left_out, times=times)
            return _some(items, {"type": kind, "items": items}, at, left_out)
        if kind == "string" and times and self.formats:
            return {"type": kind, "format": min(self.formats, key=len)}
        return {"type": kind}


def _some(
    inner: Any, schema: dict[str, Any], at: str, left_out: list[str]
) -> dict[str, Any] | None:
    if inner:
        return schema
    left_out.append(f"{at or '/'}: nothing in it has a type")
    return None


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    return "integer" if isinstance(value, int) and value in _LONG else "number"


def _is(value: str, kind: str) -> bool:

    try:
        {"date": json_schema.dates, "date-time": json_schema.timestamps}[kind](
            pa.array([value], pa.string())
        )
    except (pa.ArrowInvalid, UnicodeEncodeError):
        return False
    return True
