"""The record that fills a segment up is no message, and ends a run."""

from __future__ import annotations

import pytest

from core.tests.codec.support import log_of
from lakelog.codec import decode, decode_run
from lakelog.errors import CorruptRecord
from lakelog.format.layout import BLANK, MAGIC_BLANK
from lakelog.message import Message


def _blank(size: int) -> bytes:
    blank = BLANK.pack(size, MAGIC_BLANK) + bytes(size - 8)
    assert blank[:8].hex() == size.to_bytes(4, "big").hex() + "cbd43194"
    return blank


@pytest.mark.parametrize("size", [8, 91, 400])
def test_it_ends_a_run(size: int) -> None:
    log = log_of([Message("t", b"x")] * 2)
    run = decode_run(log + _blank(size) + log)
    assert (len(run), run.end_offset) == (2, len(log))
    with pytest.raises(CorruptRecord):
        decode(_blank(size))
