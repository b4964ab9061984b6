"""Several tables at once, made and read back alike for each kind; a parser of bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest

import lakelog
from lakelog_lake.bodies.base import BodyParser, Parsed
from lakelog_lake.landing.dispatcher import Landed, LandingDispatcher
from lakelog_lake.landing.targets import TableSpec, targets_for
from lakelog_lake.sinks.locations import encoded
from lakelog_lake.tasks.engines import in_process
from lakelog_lake.tasks.task import LandingSource, TaskLimits
from plugins.lake.tests.landing.tables import KEY, TABLE, keys_in, keys_of, read

BOUNDS = TaskLimits(pass_bytes=80 << 10, task_bytes=40 << 10)


@attrs.frozen
class Even:
    """Takes bodies of even length, and says how long each is."""

    name: str = "length"

    @property
    def fields(self) -> pa.Schema:
        return pa.schema([pa.field(self.name, pa.int64())])

    def parse(self, bodies: Any, rows: pa.RecordBatch) -> Parsed:
        assert rows.num_rows == len(bodies)
        lengths = np.array([len(each.as_py()) for each in bodies], np.int64)
        good = lengths % 2 == 0
        columns = pa.RecordBatch.from_arrays([pa.array(lengths[good])], schema=self.fields)
        return Parsed(columns, good, [f"{each} is odd" for each in lengths[~good]])


def per_topic(
    kind: str, path: Path, parsers: Mapping[str, BodyParser] | None = None, **more: Any
) -> TableSpec:
    given = parsers or {}
    if kind == "iceberg":
        return TableSpec(f"iceberg:{path}", "lake.of_{topic}", parsers=given, **more)
    return TableSpec(f"{kind}:{path}/of_{{topic}}", parsers=given, **more)


def dispatcher(
    source: LandingSource,
    spec: TableSpec,
    bounds: TaskLimits = BOUNDS,
    on_phase: Callable[[str], None] = lambda _: None,
) -> LandingDispatcher:
    return LandingDispatcher(source, targets_for(spec), in_process, bounds, on_phase)


def all_passes(lander: LandingDispatcher) -> list[Landed]:
    """Until nothing is left."""
    passes = []
    while (landed := lander.one_pass()) is not None:
        passes.append(landed)
    return passes


class Stopped(BaseException):
    """Ends a dispatcher where it stands."""


def stop_at(lander: LandingDispatcher, phase: str, number: int = 1) -> None:
    """Land until a phase has come so many times; there the dispatcher ends as if killed."""
    left = [number]

    def on_phase(what: str) -> None:
        left[0] -= what == phase
        if not left[0]:
            raise Stopped

    lander.on_phase = on_phase
    with pytest.raises(Stopped):
        all_passes(lander)


def land_spec(source: LandingSource, spec: TableSpec, bounds: TaskLimits = BOUNDS) -> list[Landed]:
    lander = dispatcher(source, spec, bounds)
    passes = all_passes(lander)
    lander.finish()
    return passes


def read_topic(kind: str, path: Path, topic: str, behind: str = "") -> pa.Table:
    name = f"of_{encoded(topic)}{behind}"
    return read(kind, path, f"lake.{name}") if kind == "iceberg" else read(kind, path / name)


def read_dead(kind: str, path: Path) -> pa.Table:
    """The dead letters of the only table."""
    if kind == "iceberg":
        return read(kind, path, f"{TABLE}_dead_letters")
    return read(kind, path.with_name(f"{path.name}_dead_letters"))


def keys_by_topic(keys: list[tuple[Any, ...]]) -> dict[str, list[tuple[Any, ...]]]:
    found: dict[str, list[tuple[Any, ...]]] = {}
    for each in keys:
        found.setdefault(each[KEY.index("topic")], []).append(each)
    return found


def assert_topics(kind: str, path: Path, keys: list[tuple[Any, ...]]) -> None:
    """Each topic's table has exactly its rows."""
    for topic, expected in keys_by_topic(keys).items():
        assert keys_in(read_topic(kind, path, topic)) == sorted(expected), topic


def lengths(store_path: Path) -> dict[int, int]:
    with lakelog.open(store_path, mode="read") as store:
        return {each.physical_offset: len(each.body) for each in store.scan()}


def assert_parsed(good: pa.Table, bad: pa.Table, store_path: Path, topic: str | None) -> None:
    """Rows of ``topic``, or of all, are in the one or in the other."""
    known = lengths(store_path)
    keys = [each for each in keys_of(store_path, "S") if topic is None or each[1] == topic]
    even = [each for each in keys if known[each[4]] % 2 == 0]
    assert keys_in(good) == even
    assert keys_in(bad) == [each for each in keys if each not in even]
    for row in good.select(["physical_offset", "length"]).to_pylist():
        assert row["length"] == known[row["physical_offset"]]
    for row in bad.select(["physical_offset", "body", "error"]).to_pylist():
        assert len(row["body"]) == known[row["physical_offset"]]
        assert row["error"] == f"{len(row['body'])} is odd"
