"""A dry run of a recovery reports the result of the recovery itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.tests.recovery.support import a_crashed_store, alter, flip, recover_small, tear
from core.tests.store.support import SEGMENT
from lakelog.errors import BadSegment


@pytest.mark.parametrize("disorder", ["none", "torn", "damaged", "set back"])
def test_a_dry_run_reports_what_the_recovery_does(disorder: str, tmp_path: Path) -> None:
    results = a_crashed_store(tmp_path)
    if disorder == "torn":
        tear(tmp_path, results[-1])
    elif disorder == "set back":
        for each in results[40:45]:
            alter(tmp_path, each.physical_offset + 56, lambda _: bytes(7) + b"\x01", 8)
    elif disorder == "damaged":
        flip(tmp_path, results[50])
    planned = recover_small(tmp_path, dry_run=True)
    done = recover_small(tmp_path)
    assert done.end_offset == planned.end_offset >= 3 * SEGMENT
    assert done.records == planned.records == len(results) - (disorder in ("torn", "damaged"))
    assert list(map(str, done.damage)) == list(map(str, planned.damage))
    assert len(done.cut) == len(planned.cut)


def test_damage_is_refused_on_request(tmp_path: Path) -> None:
    results = a_crashed_store(tmp_path)
    flip(tmp_path, results[50])
    with pytest.raises(BadSegment):
        recover_small(tmp_path, on_damage="refuse")
