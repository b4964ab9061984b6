"""Strict types: what does not fit is an error that names key and source."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest

from lakelog.errors import SettingsError
from lakelog.settings.catalog import Given
from lakelog.settings.conversion import build


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen
class Inner:
    size: int = 1


@attrs.frozen(kw_only=True)
class Many:
    whole: int = 1
    share: float = 0.5
    name: str = "x"
    on: bool = False
    place: Path = Path()
    maybe: int | None = 3
    maybe_ms: int | None = 3
    colour: Colour = Colour.RED
    mode: Literal["a", "b"] = "a"
    names: tuple[str, ...] = ()
    numbers: list[int] = attrs.field(factory=list)
    table: dict[str, str] = attrs.field(factory=dict)
    either: int | str = 0
    inner: Inner = attrs.field(factory=Inner)
    anything: Any = None
    _hidden: int = 1


def _built(values: Mapping[str, object], *, text: bool = False) -> Many:
    givens = {key: Given("many", key, value, "somewhere", text) for key, value in values.items()}
    built = build("many", Many, givens)
    assert isinstance(built, Many)
    return built


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("whole", 5, 5), ("share", 1, 1.0), ("share", 0.25, 0.25), ("on", True, True),
        ("place", "/x", Path("/x")), ("place", Path("y"), Path("y")), ("maybe", None, None),
        ("maybe", "", None), ("maybe", 7, 7), ("maybe_ms", "1s", 1000), ("maybe_ms", "", None),
        ("colour", "blue", Colour.BLUE), ("colour", Colour.BLUE, Colour.BLUE), ("mode", "b", "b"),
        ("names", ["a", "b"], ("a", "b")), ("names", ("a",), ("a",)), ("numbers", [1, 2], [1, 2]),
        ("numbers", (1, 2), [1, 2]), ("table", {"a": "b"}, {"a": "b"}), ("either", "s", "s"),
        ("either", 4, 4), ("inner", {"size": 9}, Inner(9)), ("anything", object, object),
    ],
)  # fmt: skip  # a table of values
def test_what_fits(key: str, value: object, expected: object) -> None:
    built = getattr(_built({key: value}), key)
    assert built == expected
    assert type(built) is type(expected)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("whole", "yes", "expected a whole number, got 'yes' (str)"),
        ("whole", "5", "expected a whole number"), ("whole", True, "expected a whole number"),
        ("whole", 5.0, "expected a whole number"), ("whole", None, "expected a whole number"),
        ("share", "0.5", "expected a number"), ("share", False, "expected a number"),
        ("name", 5, "expected a string"), ("on", "true", "expected true or false"),
        ("on", 1, "expected true or false"), ("place", 5, "expected a path"),
        ("maybe", "x", "expected a whole number"),
        ("maybe_ms", "x", "'x' is not a whole number of milliseconds"), ("maybe_ms", 0.5, "500ms"),
        ("colour", "green", "green"), ("mode", "c", "expected one of a, b, got 'c' (str)"),
        ("mode", 1, "expected one of a, b, got 1 (int)"),
        ("names", "abc", "expected a list, got 'abc' (str)"),
        ("names", {"a": 1}, "expected a list"), ("names", [1], "expected a string"),
        ("numbers", ["1"], "expected a whole number"), ("table", {"a": 1}, "expected a string"),
        ("either", 0.5, "got 0.5 (float)"), ("inner", {"siz": 9}, "siz"),
    ],
)  # fmt: skip  # a table of values
def test_what_does_not_fit(key: str, value: object, words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        _built({key: value})
    assert words in str(caught.value)
    assert (caught.value.key, caught.value.source) == (f"many.{key}", "somewhere")


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("whole", "5", 5), ("share", "0.5", 0.5), ("on", "TRUE", True), ("on", "false", False),
        ("maybe", "", None), ("maybe", "6", 6), ("names", "a, b,", ("a", "b")), ("names", "", ()),
        ("name", "5", "5"), ("place", "/x", Path("/x")), ("colour", "blue", Colour.BLUE),
    ],
)  # fmt: skip  # a table of values
def test_sources_without_types_are_read_by_the_field(key: str, text: str, expected: object) -> None:
    assert getattr(_built({key: text}, text=True), key) == expected


@pytest.mark.parametrize(
    ("key", "text"), [("on", "yes"), ("on", "1"), ("whole", "yes"), ("whole", "1.5"), ("share", "")]
)
def test_but_are_as_strict(key: str, text: str) -> None:
    with pytest.raises(SettingsError, match="expected"):
        _built({key: text}, text=True)


def test_a_private_field_is_set_by_its_public_name() -> None:
    assert _built({"hidden": 4})._hidden == 4


@attrs.frozen(kw_only=True)
class Crossed:
    low: int = 0
    high: int = attrs.field(default=1)

    @high.validator
    def _above(self, _: object, value: int) -> None:
        if value < self.low:
            raise ValueError("high is below low")


def test_a_validator_across_fields_names_the_sources() -> None:
    givens = {"high": Given("crossed", "high", -1, "here")}
    with pytest.raises(SettingsError, match="here: high is below low"):
        build("crossed", Crossed, givens)


def test_types_that_exist_only_for_checkers_are_explained() -> None:
    hidden = attrs.make_class("Hidden", {"field": attrs.field(default=1)})
    hidden.__annotations__ = {"field": "Nowhere"}
    with pytest.raises(SettingsError, match="Nowhere"):
        build("hidden", hidden, {"field": Given("hidden", "field", 1, "here")})
