"""An exception of a signal handler in Python code that compiled code calls is raised."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import lakelog
from lakelog_testing.interrupting import interrupted


@pytest.mark.parametrize("name", ["get", "get_records", "query", "offset_by_time"])
def test_no_look_up_drops_an_exception(tmp_path: Path, name: str) -> None:
    with lakelog.open(tmp_path, segment_size_bytes=1 << 20, preallocate=False) as store:
        stored_ms = store.put(lakelog.Message("t", b"1", keys="k", queue_id=0)).store_timestamp_ms
        assert store.wait_dispatched()
        calls: dict[str, Callable[[], object]] = {
            "get": lambda: store.get("t", 0, 0),
            "get_records": lambda: store.get_records("t", 0, 0),
            "query": lambda: store.query("t", "k"),
            "offset_by_time": lambda: store.offset_by_time("t", 0, stored_ms),
        }
        calls[name]()
        at = 0
        while (found := interrupted(calls[name], at)).place is not None:
            assert found.was_raised, found.place
            at += 1
        assert at
