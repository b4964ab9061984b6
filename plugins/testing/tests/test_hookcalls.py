"""Every hook call of a registry is counted, so that none on the message path is missed."""

from __future__ import annotations

from pathlib import Path

from core.tests.registry.samples import load, plugin
from lakelog.interfaces import Kind
from lakelog_testing import count_hook_calls


def test_hook_calls_are_counted_by_name_while_the_block_runs() -> None:
    registry = load(plugin(lakelog_store_closed=lambda: None))
    registry.events.store_closed(Path())
    with count_hook_calls(registry) as calls:
        registry.events.segment_rolled(Path(), 0)
        registry.events.store_closed(Path())
        registry.plugged.manager.hook.lakelog_writers()
    registry.events.store_closed(Path())
    assert calls == ["lakelog_store_closed", "lakelog_writers"]


def test_picking_a_strategy_calls_no_hook() -> None:
    registry = load()
    with count_hook_calls(registry) as calls:
        registry.sections()
        registry.names(Kind.WRITER)
    assert calls == []
