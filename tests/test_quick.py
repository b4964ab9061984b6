"""`make quick` chooses the tests that are nearest to a change."""

from __future__ import annotations

from tests import quick
from tests.quick import ROOT

FILES = [path for folder in ("core", "plugins/flush") for path in ROOT.glob(f"{folder}/**/*.py")]


def test_tests_of_a_changed_module_come_first() -> None:
    change = ROOT / "core/src/lakelog/files/shared/group_sync.py"
    chosen = quick.chosen([change], FILES)
    assert ROOT / "core/tests/shared/test_groupsync.py" in chosen[:5]
    assert all(path.name.startswith("test_") for path in chosen)


def test_a_changed_test_comes_before_all() -> None:
    change = ROOT / "core/src/lakelog/files/shared/group_sync.py"
    changed_test = ROOT / "plugins/flush/tests/test_waiter.py"
    assert quick.chosen([change, changed_test], FILES)[0] == changed_test
