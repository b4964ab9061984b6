"""A stated queue offset has no checksum: a flipped bit in it must not carry its queue away."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.tests.recovery.support import crash, recover_small
from core.tests.store.support import SEGMENT, open_small, overwrite
from lakelog import Message, PutResult
from lakelog_doctor.check import check

COUNT = 300
QUEUE_OFFSET = 20


def crashed(path: Path) -> list[PutResult]:
    """Two queues by turns, and an owner that died."""
    with open_small(path) as store:
        results = [
            store.put(Message("t", b"%06d" % each * 10, queue_id=each % 2)) for each in range(COUNT)
        ]
    crash(path)
    return results


def flip(path: Path, result: PutResult, bit: int) -> None:
    """Flip a bit of the stated queue offset."""
    stated = result.queue_offset ^ 1 << bit
    overwrite(path, result.physical_offset + QUEUE_OFFSET, stated.to_bytes(8))


@pytest.mark.parametrize("bit", [40, 63, 20])
@pytest.mark.parametrize("which", [150, 0, COUNT - 2, COUNT - 1])
@pytest.mark.parametrize("kept", [True, False])
def test_a_flipped_bit_raises_no_queue_and_is_told(
    tmp_path: Path, bit: int, which: int, kept: bool, caplog: pytest.LogCaptureFixture
) -> None:
    results = crashed(tmp_path)
    if not kept:
        (tmp_path / "lakelog" / "queues.json").unlink()
    flip(tmp_path, results[which], bit)
    with open_small(tmp_path) as store:
        for each in range(3):
            put = store.put(Message("t", b"x", queue_id=which % 2))
            assert put.queue_offset == COUNT // 2 + each
    found = list(check(tmp_path, index=False, plugins=[]))
    assert [each.what for each in found] == ["the record has another queue offset than its unit"]
    assert f"queue offset {which // 2}" in found[0].expected
    assert str(results[which].physical_offset) in found[0].found
    if which < COUNT - 2 and not kept:
        assert "has an impossible queue offset" in caplog.text


def test_a_recovery_says_so_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    results = crashed(tmp_path)
    (tmp_path / "lakelog" / "queues.json").unlink()
    flip(tmp_path, results[150], 40)
    recover_small(tmp_path)
    assert f"the record at {results[150].physical_offset} has an imp" in caplog.text
    assert results[150].physical_offset > SEGMENT
