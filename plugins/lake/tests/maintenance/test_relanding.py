"""Dead letters land again by a mended schema: each once, whatever is killed between."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable
from multiprocessing import get_context
from pathlib import Path

import attrs
import pytest

from lakelog import Message
from lakelog_lake.bodies.formats import parser_for
from lakelog_lake.landing.targets import TableSpec
from lakelog_lake.maintenance.removal import _Store, reland
from lakelog_lake.tasks.task import LandingSource
from plugins.lake.tests.landing.passes import sink_for
from plugins.lake.tests.landing.table_specs import (
    dispatcher,
    land_spec,
    per_topic,
    read_dead,
    read_topic,
    stop_at,
)
from plugins.lake.tests.landing.tables import any_kind, read
from plugins.lake.tests.landing.test_cli import run
from plugins.lake.tests.stores import open_small

ROWS = 60
_LONGEST_SECONDS = 60


def body(number: int) -> bytes:
    """Every tenth is broken; every third lacks what the first schema asks for."""
    if number % 10 == 9:
        return b"{broken"
    return json.dumps({"id": number} | ({"name": f"n{number}"} if number % 3 else {})).encode()


def put(store: Path, numbers: Iterable[int]) -> None:
    with open_small(store) as owner:
        owner.put_batch([Message(f"topic-{n % 2}", body(n), queue_id=n % 4) for n in numbers])


@attrs.frozen
class Landed:
    """:ivar first: by which the store has landed; :ivar mended: by which all but the broken do."""

    kind: str
    folder: Path
    first: TableSpec
    mended: TableSpec

    def reland(self) -> tuple[int, int, int]:
        (done,) = reland(self.mended)
        return done.landed, done.taken_out, done.left

    def dispatch(self, spec: TableSpec) -> None:
        land_spec(LandingSource(self.folder / "s", "S"), spec)

    def ids(self) -> list[int]:
        return sorted(read(self.kind, self.folder / "t")["id"].to_pylist())

    def assert_whole(self, count: int = ROWS) -> None:
        """All that parses is a row once; the rest, and nothing else, is a dead letter."""
        rows = read(self.kind, self.folder / "t").select(["id", "name"]).to_pylist()
        expected = [json.loads(body(n)) for n in range(count) if n % 10 != 9]
        assert sorted(rows, key=lambda row: row["id"]) == [
            {"id": each["id"], "name": each.get("name")} for each in expected
        ]
        dead = read_dead(self.kind, self.folder / "t")["body"].to_pylist()
        assert dead == [b"{broken"] * (count // 10)


@pytest.fixture
def landed(kind: str, tmp_path: Path) -> Landed:
    schemas = {
        "first": "id bigint, name string not null",
        "mended": "id bigint, name string, more string",
    }
    for name, ddl in schemas.items():
        (tmp_path / f"{name}.ddl").write_text(ddl)
    put(tmp_path / "s", range(ROWS))
    specs = (
        TableSpec(
            f"{kind}:{tmp_path / 't'}", parsers={"*": parser_for(f"json:{tmp_path / each}.ddl")}
        )
        for each in schemas
    )
    made = Landed(kind, tmp_path, *specs)
    made.dispatch(made.first)
    return made


BROKEN = ROWS // 10
LACKING = len([n for n in range(ROWS) if n % 3 == 0 and n % 10 != 9])


@pytest.mark.sample(1)
def test_what_parses_now_lands_once(landed: Landed) -> None:
    """By the command, too; where there are no dead letters it says so."""
    schema = ("--body", f"*=json:{landed.folder / 'mended.ddl'}")
    for count in (LACKING, 0):
        done = run("lake", "reland", landed.mended.to, *schema)
        assert done.exit_code == 0, done.output
        said = f"{count} rows landed, {count} dead letters removed, {BROKEN} left"
        assert said in done.stdout
        landed.assert_whole()
    landed.dispatch(TableSpec(f"{landed.kind}:{landed.folder / 'plain'}"))
    done = run("lake", "reland", f"{landed.kind}:{landed.folder / 'plain'}", *schema)
    assert (done.exit_code, "has no table of dead letters" in done.stdout) == (0, True)
    put(landed.folder / "s", range(ROWS, 2 * ROWS))
    landed.dispatch(landed.mended)
    landed.assert_whole(2 * ROWS)


def killed(landed: Landed, where: str) -> None:
    """In a process of its own; deltalake cannot be forked."""
    process = get_context("spawn").Process(target=_die, args=(landed.mended, where), daemon=True)
    process.start()
    process.join(_LONGEST_SECONDS)
    assert process.exitcode == -signal.SIGKILL


def _die(spec: TableSpec, where: str) -> None:
    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    owner = _Store if where == "take_out" else type(sink_for(spec.to))
    setattr(owner, where, die)
    list(reland(spec))


@any_kind
def test_a_kill_between_the_two_commits_doubles_nothing(landed: Landed) -> None:
    killed(landed, "take_out")
    assert len(landed.ids()) == ROWS - BROKEN
    assert landed.reland() == (0, LACKING, BROKEN)
    landed.assert_whole()


@any_kind
def test_a_kill_before_the_first_commit_loses_nothing(landed: Landed) -> None:
    killed(landed, "commit")
    assert landed.reland() == (LACKING, LACKING, BROKEN)
    landed.assert_whole()


@pytest.mark.sample(1)
def test_two_at_once_land_it_once(landed: Landed, monkeypatch: pytest.MonkeyPatch) -> None:
    inner, meanwhile = _Store._written, [True]

    def written(self: _Store, *given: object) -> object:
        found = inner(self, *given)  # type: ignore[arg-type]  # as they came
        if meanwhile:
            meanwhile.clear()
            assert landed.reland() == (LACKING, LACKING, BROKEN)
        return found

    monkeypatch.setattr(_Store, "_written", written)
    assert landed.reland() == (0, 0, BROKEN)
    landed.assert_whole()


@any_kind
def test_a_dispatcher_that_was_under_way_goes_on(
    landed: Landed, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(landed.folder / "s", range(ROWS, 2 * ROWS))
    calls: list[str] = []

    def on_phase(what: str) -> None:
        if what == "written" and not calls:
            calls.append(what)
            assert landed.reland() == (LACKING, LACKING, BROKEN)

    lander = dispatcher(LandingSource(landed.folder / "s", "S"), landed.mended, on_phase=on_phase)
    while (passed := lander.one_pass()) is not None:
        assert passed.won
    assert calls
    landed.assert_whole(2 * ROWS)


@pytest.mark.sample(1)
def test_what_is_to_land_yet_is_left_to_the_dispatcher(landed: Landed) -> None:
    """Dead letters are committed first: here their table is ahead."""
    put(landed.folder / "s", range(ROWS, 2 * ROWS))

    lander = dispatcher(LandingSource(landed.folder / "s", "S"), landed.first)
    stop_at(lander, "one committed")
    assert landed.reland()[:2] == (LACKING, LACKING)
    assert max(landed.ids()) < ROWS
    landed.dispatch(landed.first)
    landed.reland()
    landed.assert_whole(2 * ROWS)


@any_kind
def test_each_topic_may_have_tables_of_its_own(kind: str, tmp_path: Path) -> None:
    strict, loose = (
        {"*": parser_for(f"json:{tmp_path / name}.ddl")}
        for name, ddl in (("strict", "id bigint, name string not null"), ("loose", "id bigint"))
        if (tmp_path / f"{name}.ddl").write_text(ddl)
    )
    put(tmp_path / "s", range(ROWS))
    land_spec(LandingSource(tmp_path / "s", "S"), per_topic(kind, tmp_path / "t", strict))
    done = list(reland(per_topic(kind, tmp_path / "t", loose)))
    assert [each.landed for each in done] == [each.taken_out for each in done]
    assert sum(each.landed for each in done) == LACKING
    assert sum(each.left for each in done) == BROKEN
    for number in range(2):
        found = read_topic(kind, tmp_path / "t", f"topic-{number}")
        expected = [n for n in range(ROWS) if n % 10 != 9 and n % 2 == number]
        assert sorted(found["id"].to_pylist()) == expected
