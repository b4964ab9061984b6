"""Operations that a signal handler's exception interrupts, in every strategy and role.

A sample in each run; ``python -m tests.faults.interrupting`` interrupts them at all points.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faults.interrupting import GROUPS, PUTTING, READING, Case, matrix
from tests.support.sampling import chance

SOME = 8
"""Points of each case in a run."""
SOUND = sorted({*PUTTING, *READING, *GROUPS} - {"consumer"})
"""All but that of a consumer without a group's state."""
END = 60
"""Points of an open behind which the store has all of its parts."""


def _some(numbers: Sequence[int]) -> Sequence[int]:
    return sorted(chance().sample(numbers, min(SOME, len(numbers))))


@pytest.mark.sample(8)
@pytest.mark.parametrize("case", matrix(SOUND), ids=str)
def test_an_operation_is_interrupted(case: Case, tmp_path: Path) -> None:
    found = case.run(tmp_path, _some)
    assert not found.violations, found.violations
    assert found.cases


def test_an_open_that_is_interrupted_at_its_end_leaves_nothing_open(tmp_path: Path) -> None:
    case = Case("open", "none", "first", is_plain=False)
    found = case.run(tmp_path, lambda numbers: numbers[-END::4])
    assert not found.violations, found.violations
    assert found.cases
