"""One pass for one table, as tests and measurements need it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lakelog_lake.landing.dispatcher import Landed, LandingDispatcher
from lakelog_lake.landing.targets import Target, Targets
from lakelog_lake.sinks.base import Sink
from lakelog_lake.sinks.locations import location_of
from lakelog_lake.tables.shape import TableShape
from lakelog_lake.tasks.engines import Engine
from lakelog_lake.tasks.task import LandingSource, TaskLimits


def sink_for(
    to: str,
    table: str | None = None,
    shape: TableShape | None = None,
    storage: Mapping[str, str] | None = None,
) -> Sink:
    """The sink of the table ``KIND:PATH``, which may not exist yet."""
    place = location_of(to, storage)
    return place.sink(place.table(table), shape or TableShape())


def land(
    source: LandingSource,
    sink: Sink,
    engine: Engine,
    bounds: TaskLimits,
    on_phase: Callable[[str], None] = lambda _: None,
) -> Landed | None:
    """Run one pass for one table."""
    targets = Targets([Target(sink)])
    return LandingDispatcher(
        source, targets, engine, bounds, on_phase, is_last=lambda: True
    ).one_pass()
