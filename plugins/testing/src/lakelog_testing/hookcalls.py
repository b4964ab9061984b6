"""Counts pluggy's hook calls, so that a test can show that the message path makes none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakelog.registry import Registry


@contextmanager
def count_hook_calls(registry: Registry) -> Iterator[list[str]]:
    """Collect the name of every hook that is called inside the ``with`` block.

    ::

        with count_hook_calls(registry) as calls:
            store.put(message)
        assert calls == []
    """
    calls: list[str] = []
    undo = registry.plugged.manager.add_hookcall_monitoring(
        before=lambda name, _methods, _arguments: calls.append(name),
        after=lambda _outcome, _name, _methods, _arguments: None,
    )
    try:
        yield calls
    finally:
        undo()
