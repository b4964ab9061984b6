"""The words by which puts of every process wait for copies."""

from __future__ import annotations

from lakelog.files.shared.copied_end import CopiedEnd
from lakelog_testing.threads import beside


def test_copied_never_decreases_and_reachable_does() -> None:
    copied = CopiedEnd(memoryview(bytearray(64)), 8)
    assert (copied.end, copied.reachable_end) == (0, -1)
    for reachable, end in ((100, 100), (50, 100), (-1, 100), (0, 100), (120, 120)):
        copied.publish(reachable)
        assert (copied.end, copied.reachable_end) == (end, reachable)


def test_a_waiter_is_woken_through_another_view_of_the_words() -> None:
    page = memoryview(bytearray(64))
    here, elsewhere = CopiedEnd(page, 8), CopiedEnd(page, 8)
    with beside(lambda: here.wait(100, 30.0)) as call:
        elsewhere.publish(99)
        elsewhere.publish(100)
        assert call.result(30)


def test_a_wait_ends_in_time() -> None:
    copied = CopiedEnd(memoryview(bytearray(64)), 8)
    copied.publish(100)
    assert copied.wait(100, 0.0)
    assert not copied.wait(101, 0.01)
