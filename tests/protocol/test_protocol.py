"""The protocol of equal processes, walked; and the bugs that the walk has to find."""

from __future__ import annotations

import pytest

from tests.protocol import append_steps, joining
from tests.protocol.appending import Appending
from tests.protocol.explorer import Broken, explore
from tests.protocol.joining import Joining

TWO_PROCESSES = [
    pytest.param(Appending(2, *more), marks=pytest.mark.sample(1))
    for more in ((1, 2, 1), (2, 1, 1))
]
THREE_PROCESSES = [
    pytest.param(Appending(3, 1, deaths, errors), marks=pytest.mark.slow)
    for deaths, errors in ((0, 0), (1, 1), (2, 1))
]

# The smallest model that has each bug; two need a third process.
SMALLEST = {
    "half a repair": Appending(2, 1, 2),
    "blank without an intent": Appending(2, 2, 1),
    "sync not marked": Appending(2, 1, 1, 1),
    "mark not looked at": Appending(2, 1, 1, 1),
    "company not seen": Appending(2, 1, 0),
    "no second look": Appending(3, 1, 0),
    "flag not raised again": Appending(3, 1, 0),
}
OF_THREE = [bug for bug, model in SMALLEST.items() if model.processes == 3]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("model", [*TWO_PROCESSES, *THREE_PROCESSES], ids=str)
def test_no_order_of_appends_syncs_and_deaths_is_wrong(model: Appending) -> None:
    walked = explore(model)
    assert walked.ends > 100 or not model.deaths
    assert walked.states > 10_000


@pytest.mark.parametrize(
    "bug",
    [
        pytest.param(bug, marks=pytest.mark.slow if bug in OF_THREE else ())
        for bug in append_steps.BUGS
    ],
)
def test_a_bug_in_the_append_section_is_found(bug: str) -> None:
    small = SMALLEST.get(bug, Appending(2, 1, 1))
    with pytest.raises(Broken, match="\n  0 join\n"):
        explore(Appending(small.processes, small.puts, small.deaths, small.errors, bug))


@pytest.mark.sample(1)
@pytest.mark.parametrize("model", [Joining(2, 2, 2), Joining(3, 1, 1)], ids=str)
def test_no_order_of_joins_and_deaths_is_wrong(model: Joining) -> None:
    assert explore(model).states > 100_000


@pytest.mark.parametrize("bug", joining.BUGS)
def test_a_bug_in_joining_is_found(bug: str) -> None:
    with pytest.raises(Broken, match="begin"):
        explore(Joining(2, 1, 0, bug))
