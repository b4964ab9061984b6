"""The table of planted faults fits the sources, and covers areas and laws."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.mutants import faults
from tests.mutants.faults import ROOT, Fault, TableError

TABLE = faults.load()
EXAMPLE = Fault(
    name="never-locked",
    area="sync",
    file="module.py",
    function="Lock.take",
    text="self.held = True",
    instead="self.held = False",
    seen="Two threads hold the lock.",
    test="test_module.py::test_it",
)
SOURCE = """\
class Lock:
    def take(self):
        self.held = True

    def give(self):
        self.held = False

def retake(lock):
    lock.held = True
"""


def test_each_fault_has_its_place() -> None:
    for fault in TABLE:
        fault.planted(ROOT)


def test_each_area_has_at_least_five() -> None:
    counts = Counter(fault.area for fault in TABLE)
    assert {area: counts[area] for area in faults.AREAS if counts[area] < 5} == {}
    assert len(TABLE) >= 80


def test_each_law_of_durability_has_one() -> None:
    laws = faults.laws()
    assert len(laws) > 25
    for fault in TABLE:
        if fault.law:
            assert sum(law.startswith(fault.law) for law in laws) == 1, fault.name
    covered = [fault.law for fault in TABLE if fault.law]
    assert [law for law in laws if not any(map(law.startswith, covered))] == []


@cache
def functions(path: Path) -> frozenset[str]:
    """Return the names that a test file defines; with those of contract kits, which it inherits."""
    kits = ROOT.glob("plugins/testing/src/lakelog_testing/contracts/*.py")
    shared = (*kits, *path.parent.glob("*contract*.py"), *path.parent.parent.glob("*contract*.py"))
    text = "".join(each.read_text(encoding="utf-8") for each in (path, *shared))
    return frozenset(re.findall(r"^\s*(?:async )?(?:def|class) (\w+)", text, re.MULTILINE))


def test_each_named_test_is_there() -> None:
    for fault in TABLE:
        file, *names = fault.test.partition("[")[0].split("::")
        assert (ROOT / file).is_file(), f"{fault.name}: {file}"
        assert names, f"{fault.name}: name a test, not a whole file"
        missing = {*names} - functions(ROOT / file)
        assert not missing or "runTest" in names, f"{fault.name}: {fault.test}"


def test_a_fault_is_planted_in_its_function_alone(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(SOURCE)
    planted = EXAMPLE.planted(tmp_path)
    assert planted == SOURCE.replace("self.held = True", "self.held = False")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"text": "self.held = None"}, "occurs 0 times in module.py, Lock.take"),
        ({"function": "", "text": "held"}, "occurs 3 times in module.py, the file"),
        ({"function": "Lock.keep"}, "module.py has no function Lock.keep"),
        ({"file": "other.py"}, "other.py: No such file"),
        ({"instead": "self.held = True"}, "equal to `text`"),
    ],
)
def test_a_place_that_is_not_there_is_an_error(
    tmp_path: Path, change: dict[str, Any], error: str
) -> None:
    (tmp_path / "module.py").write_text(SOURCE)
    with pytest.raises(TableError, match=error):
        attrs.evolve(EXAMPLE, **change).planted(tmp_path)
