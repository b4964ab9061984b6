"""An object made by a factory is checked against the Protocol of its kind, by signature."""

# ruff: noqa: ARG005 - functions here have the arguments that are tested
from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any, Protocol

import pytest

from core.tests.registry.samples import CONTEXT, Flush, Offering, factory, load
from lakelog.errors import BadStrategy
from lakelog.interfaces import FlushStrategy, Kind, NoSettings, Writer, WriterTraits
from lakelog.registry import check_object

SUBMIT = "expected submit(end_offset: 'int', wait: 'bool')"


def variant(submit: Any) -> object:
    return type("Variant", (Flush,), {"submit": submit})()


class Encodes(Protocol):
    def encode(self, encoding: str, errors: str) -> bytes: ...


def test_the_signature_of_a_compiled_method_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_object("one", Encodes) is None
    parsed = list[object]()
    monkeypatch.setattr(inspect, "signature", parsed.append)
    assert check_object("another", Encodes) is None
    assert parsed == []


def test_a_sound_object_has_no_problem() -> None:
    assert check_object(Flush(), FlushStrategy) is None


@pytest.mark.parametrize(
    "submit",
    [
        lambda self, *args, **more: None,
        lambda self, end_offset, wait, extra=1: None,
        staticmethod(lambda end_offset, wait: None),
        classmethod(lambda cls, end_offset, wait: None),
        functools.partialmethod(lambda self, mode, end_offset, wait: None, 1),
    ],
)
def test_whatever_takes_the_arguments_will_do(submit: Callable[..., Any]) -> None:
    assert check_object(variant(submit), FlushStrategy) is None


@pytest.mark.parametrize(
    ("submit", "problem"),
    [
        (lambda self: None, "its method <lambda>"),
        (lambda self, end_offset: None, "its method"),
        (lambda self, end_offset, wait, extra: None, "its method"),
        (lambda self, end, wait: None, "its method"),
        (lambda self, end_offset, wait, /: None, "its method"),
        (lambda self, *, end_offset, wait: None, "its method"),
        (None, "it lacks the method submit"),
        (operator.neg, "is neg(a, /)"),
        (7, "its submit is no method, but 7"),
    ],
)
def test_whatever_does_not_is_named_with_what_was_expected(submit: Any, problem: str) -> None:
    made = variant(submit)
    for _ in range(2):  # the second time from the cache, where there is one
        found = check_object(made, FlushStrategy)
        assert found is not None
        assert problem.replace("<lambda>", "submit") in found
        assert SUBMIT in found


def test_a_coroutine_would_never_run() -> None:
    async def submit(self: object, end_offset: int, wait: bool) -> None: ...

    assert "submit is async" in str(check_object(variant(submit), FlushStrategy))


def test_every_problem_is_named() -> None:
    found = str(check_object(object(), FlushStrategy))
    assert all(name in found for name in ("start", "submit", "close"))


def test_a_class_in_the_place_of_its_object() -> None:
    assert "its method close is close(self)" in str(check_object(Flush, FlushStrategy))


def test_attributes_count() -> None:
    class Bare:
        def open(self, file: object, size_bytes: int, position: int) -> object: ...

    class Wrong(Bare):
        traits = "fast"

    class Right(Bare):
        traits = WriterTraits()

    assert check_object(Bare(), Writer) == "it lacks the attribute traits: WriterTraits"
    assert check_object(Wrong(), Writer) == "its attribute traits is 'fast', not a WriterTraits"
    assert check_object(Right(), Writer) is None


@pytest.mark.parametrize("made", [None, object(), Flush])
def test_make_refuses_what_does_not_conform(made: object) -> None:
    registry = load(Offering(factory(make=lambda settings, context: made)))
    with pytest.raises(BadStrategy, match=r"'offering': its flush strategy 'sample': it"):
        registry.make(Kind.FLUSH_STRATEGY, "sample", NoSettings(), CONTEXT)
