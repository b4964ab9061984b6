"""Deliveries and bits of leases by compiled code are those of plain Python."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from lakelog import Delivery
from lakelog.accelerate import current, use
from lakelog_native import _native
from lakelog_native.accelerator import Native
from lakelog_queues.groups.leases import bits_of
from lakelog_queues.groups.read_ahead import Reserved


def rows_of(count: int) -> list[Any]:
    queues = [SimpleNamespace(queue=("t", 0)), SimpleNamespace(queue=("ü", 7))]
    return [
        (at, queues[at % 3 // 2], 1 << 40 | at, SimpleNamespace(reconsume_times=at % 5))
        for at in range(count)
    ]


def handed_out(rows: list[Any], accelerator: Native | None) -> list[list[Delivery]]:
    before = current()
    use(accelerator)
    try:
        reserved = Reserved(rows, [16 * at for at in range(len(rows))], 1 << 60)
        return [reserved.deliveries(most, 5, 6) for most in (1, 0, 3, 100, 1)]
    finally:
        use(before)


@pytest.mark.parametrize("count", [0, 1, 4, 50])
def test_deliveries(count: int) -> None:
    rows = rows_of(count)
    found = handed_out(rows, Native())
    assert found == handed_out(rows, None)
    assert sum(map(len, found)) == count
    assert {type(each) for part in found for each in part} <= {Delivery}
    assert all(hash(each.handle) == hash(tuple(each.handle)) for part in found for each in part)


def test_deliveries_of_what_is_no_row() -> None:
    with pytest.raises(TypeError):
        _native.deliveries(Delivery, [None], [1], 1, 0, 1, 2, 3)
    with pytest.raises(TypeError, match="is a tuple"):
        _native.deliveries(int, [], [], 1, 0, 0, 2, 3)
    with pytest.raises(AttributeError):
        _native.deliveries(Delivery, [(0, None, 1, None)], [1], 1, 0, 1, 2, 3)
    with pytest.raises(IndexError):
        _native.deliveries(Delivery, [], [], 1, 0, 1, 2, 3)


def test_bits() -> None:
    dice = random.Random(4)
    reserved = {16 * at: (1000 + at // 2, 1 << 40, 70 + at) for at in range(8)}
    handles = [
        (lease, reserved[lease][2], (1 << 40) + dice.randrange(64))
        for lease in (16 * dice.randrange(8) for _ in range(300))
    ]
    for count in (0, 1, 2, 300):
        assert _native.bits_of(handles[:count], reserved) == bits_of(handles[:count], reserved)
    for other in [(16, 70, 1 << 40), (17, 71, 1 << 40)]:
        assert bits_of([*handles, other], reserved) is None
        assert _native.bits_of([*handles, other], reserved) is None


@pytest.mark.parametrize("wrong", [(16, 71), None, (16, 71, (1 << 40) - 1), (16, 71, 1 << 41)])
def test_unusual_handles_are_left_to_python(wrong: Any) -> None:
    assert _native.bits_of([wrong], {16: (1000, 1 << 40, 71)}) is None
