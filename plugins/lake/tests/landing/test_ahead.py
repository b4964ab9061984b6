"""The next pass is written while one is committed; it lands only from where the tables then are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import attrs
import pytest

from lakelog_lake.errors import TooManyDeadLetters, Unreachable
from lakelog_lake.landing.dispatcher import Landed, LandingDispatcher
from lakelog_lake.landing.targets import TableSpec, Target, Targets
from lakelog_lake.sinks.base import Sink
from lakelog_lake.tasks.engines import in_process
from lakelog_lake.tasks.task import LandingSource, TaskLimits
from plugins.lake.tests.landing.table_specs import Even, all_passes, dispatcher, read_dead
from plugins.lake.tests.landing.tables import (
    SMALL,
    any_kind,
    assert_exactly,
    commits,
    files,
    in_folder,
    keys_of,
    land_one,
    make,
    nothing,
    read,
)

LONGEST_SECONDS = 30


@attrs.define(eq=False)
class Meanwhile:
    """A table whose first commit begins when the next pass is written; ``does`` comes before it."""

    inner: Sink
    does: Callable[[], None] = nothing
    times: int = 1
    written: Event = attrs.field(factory=Event)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def on_phase(self, phase: str) -> None:
        if phase == "written ahead":
            self.written.set()

    def commit(self, *given: Any) -> None:
        if self.times:
            self.times -= 1
            assert self.written.wait(LONGEST_SECONDS), "the next pass waits for the commit"
            self.does()
        self.inner.commit(*given)

    def lander(self, store: Path) -> LandingDispatcher:
        sink: Any = self
        targets = Targets([Target(sink)])
        return LandingDispatcher(
            LandingSource(store, "S"), targets, in_process, SMALL, self.on_phase
        )


def assert_tidy(kind: str, table: Path, store: Path) -> None:
    """All rows once, and no file besides."""
    assert_exactly(kind, table, keys_of(store, "S"))
    assert in_folder(make(kind, table).folder) == set(files(kind, table))


@any_kind
def test_the_next_pass_is_written_before_one_is_committed(
    kind: str, store_path: Path, tmp_path: Path
) -> None:
    table, seen = tmp_path / "t", list[int]()
    sink = Meanwhile(make(kind, table), lambda: seen.append(len(in_folder(sink.folder))))
    passes = all_passes(sink.lander(store_path))
    assert len(passes) > 2
    assert seen[0] > passes[0].files
    assert commits(kind, table) == len(passes)
    assert all(each.won for each in passes)
    assert_tidy(kind, table, store_path)


@pytest.mark.parametrize(
    "bounds", [SMALL, attrs.evolve(SMALL, pass_bytes=60 << 10)], ids=["as far", "further"]
)
@any_kind
def test_what_was_written_ahead_of_a_pass_that_another_landed(
    kind: str, store_path: Path, tmp_path: Path, bounds: TaskLimits
) -> None:
    """It lands where the other one came as far as this one, and is removed where it went on."""
    table = tmp_path / "t"

    def other() -> None:
        assert land_one(LandingSource(store_path, "S"), make(kind, table), bounds).won

    passes = all_passes(Meanwhile(make(kind, table), other).lander(store_path))
    assert [each.won for each in passes] == [False, *[True] * (len(passes) - 1)]
    assert_tidy(kind, table, store_path)


def test_a_commit_that_fails_takes_with_it_what_was_written_ahead(
    store_path: Path, tmp_path: Path
) -> None:
    table = tmp_path / "t"

    def fail() -> None:
        raise OSError("no")

    lander = Meanwhile(make("parquet", table), fail, times=5).lander(store_path)
    with pytest.raises(Unreachable):
        lander.one_pass()
    landed = all_passes(lander)
    assert landed[0].start == 0
    first = landed[0].files
    assert_exactly("parquet", table, keys_of(store_path, "S"))
    assert len(in_folder(table) - set(files("parquet", table))) == first  # those that it had tried


def test_an_end_removes_what_was_written_ahead(store_path: Path, tmp_path: Path) -> None:
    table = tmp_path / "t"
    lander = Meanwhile(make("parquet", table)).lander(store_path)
    lander.one_pass()
    lander.finish()
    assert commits("parquet", table) == 1
    assert in_folder(table) == set(files("parquet", table))


def test_nothing_is_written_ahead_of_the_last_pass(store_path: Path, tmp_path: Path) -> None:
    phases: list[str] = []
    spec = TableSpec(f"parquet:{tmp_path / 't'}")
    lander = dispatcher(LandingSource(store_path, "S"), spec, SMALL, phases.append)
    lander.is_last = lambda: len(phases) > 4
    landed: list[Landed | None] = [lander.one_pass() for _ in range(2)]
    lander.finish()
    assert all(landed)
    assert phases.count("written ahead") == 1


def test_a_limit_of_dead_letters_counts_when_a_pass_lands(store_path: Path, tmp_path: Path) -> None:
    spec = TableSpec(f"parquet:{tmp_path / 't'}", parsers={"*": Even()})
    lander = dispatcher(LandingSource(store_path, "S"), spec, SMALL)
    first = lander.one_pass()
    assert first is not None
    lander.max_dead_letters = first.dead_letters
    lander._dead_letters = first.dead_letters
    with pytest.raises(TooManyDeadLetters):
        lander.one_pass()
    assert read_dead("parquet", tmp_path / "t").num_rows == first.dead_letters
    assert read("parquet", tmp_path / "t").num_rows == first.rows - first.dead_letters
    for each in lander.targets.served:
        folder = Path(str(each.sink.folder))
        assert in_folder(folder) == set(files("parquet", folder.parent))
