"""Differing byte strings of any length are reported by their first difference."""

from __future__ import annotations

import re

import pytest

from lakelog_testing.samebytes import assert_same

LONG = bytes(1 << 20)


def test_what_is_the_same_passes() -> None:
    assert_same(b"", b"")
    assert_same(memoryview(LONG), LONG)


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (LONG[:-1] + b"\x01", "at 1048575 is b'\\x01', expected b'\\x00'"),
        (LONG[:-1], "1048575 bytes, 1048576 expected; at 1048575 is b'', expected b'\\x00'"),
        (LONG + b"more", "at 1048576 is b'more', expected b''"),
        (b"\x02" + LONG[1:], "at 0 is b'\\x02\\x00"),
    ],
)
def test_the_first_difference_is_told(found: bytes, told: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(told)):
        assert_same(found, LONG)
