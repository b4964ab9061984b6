"""The JSON Schema of the settings."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import attrs
import jsonschema

from core.tests.settings.samples import SECTIONS
from lakelog_cli.schema import ivars_of, schema, section_schema


class Colour(Enum):
    RED = "red"


@attrs.frozen(kw_only=True)
class Many:
    """All kinds.

    :ivar mode: one of two
    """

    must: str
    mode: Literal["a", "b"] = "a"
    colour: Colour = Colour.RED
    names: tuple[str, ...] = ("x",)
    table: Mapping[str, str] = attrs.field(factory=dict)
    place: Path | None = None
    maybe: int | None = None
    either: int | str = 1
    wait_hours: int = 72


def test_every_kind_of_type() -> None:
    made = section_schema(Many)
    assert made["required"] == ["must"]
    assert made["properties"] == {
        "must": {"type": "string"},
        "mode": {"enum": ["a", "b"], "description": "one of two", "default": "a"},
        "colour": {"enum": ["red"], "default": "red"},
        "names": {"type": "array", "items": {"type": "string"}, "default": ["x"]},
        "table": {"type": "object", "additionalProperties": {"type": "string"}, "default": {}},
        "place": {"type": "string"},
        "maybe": {"anyOf": [{"type": "integer"}, {"const": ""}]},
        "either": {"anyOf": [{"type": "integer"}, {"type": "string"}], "default": 1},
        "wait_hours": {
            "type": ["integer", "string"],
            "minimum": 0,
            "pattern": made["properties"]["wait_hours"]["pattern"],
            "default": 72,
        },
    }


def test_a_validator_agrees() -> None:
    made = schema(SECTIONS)
    timed = made["properties"]["timed"]
    assert timed["description"] == "Flushes now and then."
    pages = timed["properties"]["flush_least_pages"]
    words = "fewer dirty pages than this are not flushed"
    assert pages == {"type": "integer", "description": words, "default": 4}
    validator = jsonschema.Draft202012Validator(made)
    validator.check_schema(made)
    good: Any = {"segment_size_bytes": "64 MiB", "replicator": "", "timed": {"names": ["a"]}}
    assert validator.is_valid(good)
    for bad in (
        {"segment_size_bytes": "64M"},
        {"segment_size_bytes": -1},
        {"writr": "x"},
        {"timed": {"flush_interval_ms": "soon"}},
        {"record_crc": "true"},
    ):
        assert not validator.is_valid(bad), bad


def test_docstrings_tell() -> None:
    class Base:
        """Base.

        :ivar one: the first,
            on two lines
        :param x: not a field

        More.
        """

    class Derived(Base):
        """Derived.

        :ivar two: ends: with a colon
        """

    assert ivars_of(Derived) == {"one": "the first, on two lines", "two": "ends: with a colon"}
    assert ivars_of(object) == {}
