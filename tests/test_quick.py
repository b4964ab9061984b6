"""`make quick` chooses the tests that are nearest to a change."""

from __future__ import annotations

from tests import quick
from tests.quick import ROOT


def test_tests_of_a_change_come_first_and_changed_ones_before_all() -> None:
    files = [*ROOT.glob("core/**/*.py"), *ROOT.glob("plugins/flush/**/*.py")]
    change = ROOT / "core/src/lakelog/processes/group_sync.py"
    chosen = quick.chosen([change], files)
    assert ROOT / "core/tests/processes/test_group_sync.py" in chosen[:5]
    assert all(path.name.startswith("test_") for path in chosen)
    changed_test = ROOT / "plugins/flush/tests/test_waiter.py"
    assert quick.chosen([change, changed_test], files)[0] == changed_test
