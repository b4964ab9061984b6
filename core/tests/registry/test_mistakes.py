"""Every mistake of a plugin, or of what its factory makes, is an error that says what to do."""

# ruff: noqa: ARG005 - functions here have the arguments that are tested
from __future__ import annotations

import functools
import inspect
import logging
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import attrs
import pluggy
import pytest

from core.tests.registry.samples import (
    CONTEXT,
    Flush,
    Offering,
    Pace,
    factory,
    hooks_of,
    load,
    plain,
    plugin,
)
from lakelog.errors import BadHook, BadStrategy, PluginError
from lakelog.hooks import DiskState, FlushStrategy, Kind, NoSettings, Writer, WriterTraits
from lakelog.hooks.hookspecs import hookimpl
from lakelog.registry import Events, check_object
from lakelog.registry.loading import known_hooks


def nothing() -> Any:
    """A new function each time, since markers stay on functions."""

    def offer() -> list[Any]:
        return []

    return offer


def refuses(given: object, error: type[PluginError], match: str) -> None:
    with pytest.raises(error, match=match) as caught:
        load(given)
    assert caught.value.plugin == "sample"
    assert str(caught.value).startswith("plugin 'sample': ")


def wrapper() -> Any:
    return (yield)


def unmarked(function: Any) -> Any:
    return type("Sample", (), {"__name__": "sample", "lakelog_writers": function})()


HOOKS: dict[str, tuple[object, str]] = {
    "misspelt": (
        plugin(lakelog_flush_strategy=nothing()),
        r"no hook lakelog_flush_strategy; did you mean 'lakelog_flush_strategies'\?",
    ),
    "unlike any": (plugin(zzz=nothing()), r"no hook zzz; the hooks are lakelog_accel"),
    "a misspelt specname": (
        plain(writers=hookimpl(specname="lakelog_writerz")(nothing())),
        "lakelog_writers",
    ),
    "no marker": (unmarked(nothing()), "lakelog_writers lacks @hookimpl"),
    "no marker, static": (unmarked(staticmethod(nothing())), "lakelog_writers lacks @hookimpl"),
    "no marker, of a class": (unmarked(classmethod(lambda cls: [])), "lacks @hookimpl"),
    "no marker, a property": (unmarked(property(lambda self: [])), "lacks @hookimpl"),
    "the marker of another project": (
        plain(lakelog_writers=pluggy.HookimplMarker("pytest")(nothing())),
        "lacks @hookimpl",
    ),
    "none at all": (plain(), "no hook at all"),
    "an argument that it does not have": (
        plugin(lakelog_segment_rolled=lambda path, offset: None),
        r"lakelog_segment_rolled has no argument offset: .*\(path, start_offset\)",
    ),
    "an argument with a default": (
        plugin(lakelog_segment_rolled=lambda path, start_offset=0: None),
        "has a default",
    ),
    "star arguments": (plugin(lakelog_store_closed=lambda **more: None), r"argument \*\*more"),
    "a wrapper": (plain(lakelog_writers=hookimpl(wrapper=True)(wrapper)), "is a hook wrapper"),
}


@pytest.mark.parametrize("what", HOOKS)
def test_a_mistake_in_a_hook_is_named(what: str) -> None:
    given, match = HOOKS[what]
    refuses(given, BadHook, match)


@pytest.mark.parametrize(
    "given",
    [
        plain(lakelog_from_the_future=hookimpl(optionalhook=True)(nothing())),
        plugin(lakelog_segment_rolled=lambda start_offset: None),
        plugin(lakelog_writers=nothing()),
    ],
    ids=["an optional hook of a later lakelog", "arguments left out", "an empty list"],
)
def test_what_is_no_mistake_is_loaded(given: Any) -> None:
    given.lakelog_version, given.lakelog_module = "1.0", pytest  # no hooks
    assert load(given).plugged.sources


def test_methods_and_static_methods_are_hooks() -> None:
    class Sample:
        @hookimpl
        def lakelog_store_closed(self, path: object) -> None: ...

        @hookimpl
        @staticmethod
        def lakelog_store_failed(cause: object) -> None: ...

        @classmethod
        @hookimpl
        def lakelog_segment_rolled(cls, path: object) -> None: ...

    registry = load(Sample())
    name = next(name for name in registry.plugged.sources if name.endswith("Sample"))
    assert len(hooks_of(registry, name)) == 3


def test_a_plugin_must_be_hashable() -> None:
    @attrs.define
    class Unhashable:
        __name__ = "sample"

        @hookimpl
        def lakelog_store_closed(self) -> None: ...

    refuses(Unhashable(), PluginError, "cannot be hashed")


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (None, r"lakelog_writers returned None; return a list"),
        (factory(), r"returned Factory.*; return a list of factories"),
        ("writer", r"returned 'writer'; return a list of factories"),
        ((item for item in [1]), r"returned <generator.*; return a list of factories"),
        ([factory(kind=Kind.WRITER), object()], r"a list with <object.*; return Factory objects"),
        ([factory(kind=Kind.CLEANER)], r"lakelog_writers returned 'sample', whose kind is .*CLEA"),
        ([factory("Big Name", kind=Kind.WRITER)], r"the name 'Big Name'; a name is lower-case"),
        ([factory("under_score", kind=Kind.WRITER)], r"lower-case words"),
        ([factory("", kind=Kind.WRITER)], r"lower-case words"),
        ([factory("auto", kind=Kind.WRITER)], r"'auto', which the core's own settings use"),
        ([factory("disk-watcher", kind=Kind.WRITER)], r"'disk-watcher', which the core's"),
        ([factory(kind=Kind.WRITER, settings=dict)], r"no attrs class; use @attrs.frozen"),
        ([factory(kind=Kind.WRITER, settings=7)], "are 7, which is no attrs class"),
        ([factory(kind=Kind.WRITER, make="make")], r"make of 'sample' is 'make', which cannot be"),
    ],
)
def test_a_hook_returns_factories_of_its_kind(value: object, match: str) -> None:
    refuses(plugin(lakelog_writers=lambda: value), BadStrategy, match)


def test_a_settings_format_has_no_settings() -> None:
    offered = factory("table", kind=Kind.SETTINGS_FORMAT, settings=Pace)
    refuses(
        plugin(lakelog_settings_formats=lambda: [offered]),
        BadStrategy,
        r"the settings format 'table' has settings, but it is used before any are read; use",
    )


def test_a_hook_that_raises() -> None:
    def fails() -> Any:
        raise ZeroDivisionError("by zero")

    with pytest.raises(PluginError, match=r"'sample': lakelog_writers failed with ZeroDiv") as got:
        load(plugin(lakelog_writers=fails))
    assert isinstance(got.value.__cause__, ZeroDivisionError)


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
    assert check_object(Flush(), FlushStrategy) is None


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


def test_what_else_is_wrong_is_named() -> None:
    async def submit(self: object, end_offset: int, wait: bool) -> None: ...

    assert "submit is async" in str(check_object(variant(submit), FlushStrategy))
    found = str(check_object(object(), FlushStrategy))
    assert all(name in found for name in ("start", "submit", "close"))
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


PATH = Path("/data/orders")

CALLS: dict[str, tuple[object, ...]] = {
    "store_opening": (PATH, True),
    "store_recovered": (PATH, "report"),
    "segment_rolled": (PATH, 1024),
    "segment_deleting": (PATH, 1024),
    "segment_deleted": (PATH, 1024),
    "disk_pressure": (PATH, DiskState.CLEAN),
    "store_failed": (PATH, OSError("bad disk")),
    "store_closed": (PATH,),
    "cli_commands": ("app",),
}
ASKED = {"store_opening", "segment_deleting"}


def boom() -> None:
    raise RuntimeError("boom")


def hearing(event: str, heard: list[object]) -> Callable[..., None]:
    names = {
        "store_opening": "path, read_only",
        "store_recovered": "path, report",
        "disk_pressure": "path, state",
        "store_failed": "path, cause",
        "store_closed": "path",
        "cli_commands": "app",
    }.get(event, "path, start_offset")
    made: Callable[..., None] = eval(f"lambda {names}: heard.append(({names},))", {"heard": heard})
    return made


def call(events: Events, event: str) -> Any:
    return getattr(events, event)(*CALLS[event])


def test_every_lifecycle_hook_has_a_method() -> None:
    hooks = {name.removeprefix("lakelog_") for name in known_hooks()}
    offering = {kind.value.removeprefix("lakelog_") for kind in Kind}
    assert hooks - offering == set(CALLS)


def test_one_plugin_alone_can_be_asked_for_its_commands() -> None:
    heard: list[object] = []
    hook = hearing("cli_commands", heard)
    registry = load(*(plugin(name, lakelog_cli_commands=hook) for name in ("ear", "other")))
    registry.events.cli_commands("app", "ear")
    assert heard == [("app",)]
    registry.events.cli_commands("app")
    assert heard == [("app",)] * 3


@pytest.mark.parametrize("event", CALLS)
def test_plugins_hear_of_events_with_their_arguments(event: str) -> None:
    heard: list[object] = []
    registry = load(plugin("ear", **{f"lakelog_{event}": hearing(event, heard)}))
    call(registry.events, event)
    assert heard == [CALLS[event]]
    assert call(load().events, event) is None


@pytest.mark.parametrize("event", sorted(set(CALLS) - ASKED))
def test_one_that_raises_is_logged_and_does_not_stop_the_others(
    event: str, caplog: pytest.LogCaptureFixture
) -> None:
    hook = f"lakelog_{event}"
    for order in (("bad", "good"), ("good", "bad")):
        heard: list[object] = []
        functions = {"bad": boom, "good": hearing(event, heard)}
        registry = load(*(plugin(name, **{hook: functions[name]}) for name in order))
        with caplog.at_level(logging.ERROR, "lakelog"):
            call(registry.events, event)
        assert heard == [CALLS[event]]
        (record,) = caplog.records
        assert record.name == "lakelog"
        assert f"plugin 'bad' failed in {hook}" in record.getMessage()
        assert record.exc_info is not None
        assert isinstance(record.exc_info[1], RuntimeError)
        caplog.clear()


def test_opening_can_be_forbidden() -> None:
    registry = load(plugin("guard", lakelog_store_opening=lambda path: boom()))
    match = rf"plugin 'guard': it refuses to open {PATH}: RuntimeError: boom"
    with pytest.raises(PluginError, match=match) as caught:
        registry.events.store_opening(PATH, False)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_deleting_can_be_forbidden_and_the_answer_says_by_whom() -> None:
    registry = load(
        plugin("quiet", lakelog_segment_deleting=lambda: None),
        plugin("archive", lakelog_segment_deleting=lambda path: boom()),
    )
    veto = registry.events.segment_deleting(PATH, 0)
    assert veto == "plugin 'archive' vetoed it: RuntimeError: boom"
    registry = load(plugin("quiet", lakelog_segment_deleting=lambda: "whatever"))
    assert registry.events.segment_deleting(PATH, 0) is None


def test_an_interrupt_is_not_swallowed() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    registry = load(plugin("slow", lakelog_store_closed=interrupted))
    with pytest.raises(KeyboardInterrupt):
        registry.events.store_closed(PATH)
