"""Images are checked in a short way, and some in the whole one: each finds bugs by itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import attrs
import pytest

from lakelog_testing.crash import Checker, CrashPlan, simulate
from lakelog_testing.crash.fastchecker import FastChecker
from tests.crash.test_planted_bugs import BUGS, FOUND_BY_BOTH, MOST_IMAGES, Plant

ALWAYS: Final = 1
NEVER: Final = 1 << 40


@pytest.mark.parametrize("plant", FOUND_BY_BOTH, ids=lambda plant: plant.__name__)
@pytest.mark.parametrize(
    "whole",
    [
        pytest.param(ALWAYS, marks=pytest.mark.slow, id="whole"),
        pytest.param(NEVER, marks=pytest.mark.sample(5), id="short"),
    ],
)
def test_a_planted_bug_is_found_by_one_way_alone(
    whole: int, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, what = BUGS[plant]
    plant(monkeypatch)
    again = attrs.evolve(plan, images_per_whole_check=whole)
    outcome = simulate(again, MOST_IMAGES, seed=11)
    assert outcome.violations, f"{plant.__name__} was not found in {outcome.images} images"
    assert re.search(what, outcome.violations[0].what), outcome


@pytest.mark.parametrize(("per", "whole"), [(ALWAYS, True), (NEVER, False)])
def test_the_plan_says_how_many_go_the_whole_way(
    per: int, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone: list[type] = []
    for way in (Checker, FastChecker):
        monkeypatch.setattr(way, "check", _noting(way, gone))
    outcome = simulate(CrashPlan(flush="inline", images_per_whole_check=per), 60, seed=3)
    assert not outcome.violations, outcome
    assert len(gone) == outcome.images
    assert (gone.count(Checker) > 50) == whole  # without a commitlog, there is one way only


def _noting(way: type[Checker | FastChecker], gone: list[type]) -> object:
    real: Callable[..., None] = way.check

    def check(self: object, *given: object, **named: object) -> None:
        gone.append(way)
        real(self, *given, **named)

    return check
