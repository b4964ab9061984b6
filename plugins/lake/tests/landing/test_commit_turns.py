"""Dispatchers that commit in turns: none of them conflicts, and each range lands once."""

from __future__ import annotations

import logging
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from lakelog_lake.landing.committing import CommitLock
from lakelog_lake.landing.dispatcher import Landed, LandingDispatcher, until_done
from lakelog_lake.landing.targets import Target, Targets
from lakelog_lake.tasks.engines import in_process
from lakelog_lake.tasks.task import LandingSource, TaskLimits
from plugins.lake.tests.landing.tables import any_kind, assert_exactly, keys_of, make, when
from plugins.lake.tests.stores import filled

TINY = TaskLimits(pass_bytes=10 << 10, task_bytes=10 << 10)


def dispatcher(path: Path, name: str, kind: str, table: Path, lock: Path) -> LandingDispatcher:
    source, targets = LandingSource(path, name), Targets([Target(make(kind, table))])
    return LandingDispatcher(source, targets, in_process, TINY, commit_lock=CommitLock(lock))


@any_kind
def test_many_stores_land_without_a_conflict(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "lakelog_lake")
    names = ["a", "b", "c"]
    stores = {each: filled(tmp_path / each, 120) for each in names}
    landers = [
        dispatcher(path, name, kind, tmp_path / "t", tmp_path / "lock")
        for name, path in stores.items()
    ]
    landed: list[Landed] = []

    def run(lander: LandingDispatcher) -> None:
        until_done(lander.one_pass, Event(), landed.append)
        lander.finish()

    with ThreadPoolExecutor(len(landers)) as threads:
        list(threads.map(run, landers))
    assert len(landed) > 2 * len(names)
    assert all(each.won for each in landed)
    assert [each for each in caplog.messages if "trying again" in each] == []
    expected = [row for name, path in stores.items() for row in keys_of(path, name)]
    assert_exactly(kind, tmp_path / "t", expected)


def test_a_range_that_another_dispatcher_landed_is_not_landed_again(
    kind: str, tmp_path: Path
) -> None:
    store, table, lock = filled(tmp_path / "s", 50), tmp_path / "t", tmp_path / "lock"
    first, second = (dispatcher(store, "s", kind, table, lock) for _ in range(2))

    passes: list[Landed | None] = []
    first.on_phase = when("written", lambda: passes.append(second.one_pass()))
    passes.append(first.one_pass())
    assert [each and each.won for each in passes] == [True, False]
    first.close()
    second.close()
    assert_exactly(kind, table, keys_of(store, "s"))


def test_a_turn_ends_with_its_process(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from lakelog_lake.landing.committing import CommitLock\n"
        "with CommitLock(Path(sys.argv[1])).taken(): print('mine', flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "mine\n"
        waits: list[str] = []

        def on_wait(what: str) -> None:
            waits.append(what)
            holder.kill()

        with CommitLock(tmp_path / "lock", on_wait).taken():
            assert waits
