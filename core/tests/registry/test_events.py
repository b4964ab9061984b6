"""Observers are isolated; opening and deleting can be forbidden."""

# ruff: noqa: ARG005 - functions here have the arguments that are tested
from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.tests.registry.samples import load, plugin
from lakelog.errors import PluginError
from lakelog.interfaces import DiskState, Kind
from lakelog.registry import Events
from lakelog.registry.loading import known_hooks

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
