"""Tags codes of many records at once: gathered property strings, alike or not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.tests.consumequeue.support import batch_of
from core.tests.consumequeue.test_tags import reference_code, reference_hash
from lakelog.codec import propertyblocks
from lakelog.consumequeue.tags import tags_codes
from lakelog.consumequeue.tagsalike import alike_codes

PAIRS = ["TAGS\x01a", "TAGS\x01b", "TAGS\x01", "TAGS\x01é", "TAGS\x01longer", "XTAGS\x01a"]
ODD = ["A\x01TAGS\x01b", "TAGS", "", "KEYS\x01a", "TAGT\x01a", "\x01a"]
PIECES = st.sampled_from([*PAIRS, *ODD])
STRINGS = st.lists(PIECES, max_size=4).map("\x02".join)


@given(st.lists(STRINGS, min_size=1, max_size=6), st.integers(1, 3))
def test_codes_are_those_of_the_last_tags(strings: list[str], copies: int) -> None:
    strings = strings * copies
    batch = batch_of([("t", text, b"\x02TAGS\x01no\x02") for text in strings])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(propertyblocks, "LEAST_BYTES", 0)
        assert tags_codes(batch).tolist() == [reference_code(text) for text in strings]


@pytest.mark.parametrize("lengths", [1, propertyblocks.MOST_LENGTHS, 200])
def test_a_run_of_many_records(lengths: int) -> None:
    strings = [f"KEYS\x01{'k' * (at % lengths)}\x02TAGS\x01t{at % 10}" for at in range(1_000)]
    batch = batch_of([("t", text, b"x" * 100) for text in strings])
    assert propertyblocks.pays(batch) == (lengths <= propertyblocks.MOST_LENGTHS)
    assert tags_codes(batch).tolist() == [reference_code(text) for text in strings]


def block(*rows: bytes) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1)


def test_rows_of_one_layout_take_the_short_way() -> None:
    found = alike_codes(block(b"KEYS\x01a\x02TAGS\x01TagA\x02", b"KEYS\x01b\x02TAGS\x01TagB\x02"))
    assert found is not None
    assert found.tolist() == [reference_hash("TagA"), reference_hash("TagB")]


@pytest.mark.parametrize(
    "other",
    [
        b"TAGX\x01a\x02KEYS\x01b",
        b"KEYS\x01a\x02TAGS\x01b",
        b"TAGS\x01\x02aKEYS\x01b",
        b"TAGS\x01a\x02KEYS\x02b",
        b"TAGS\x01\xc3\x02KEYS\x01b",
    ],
)
def test_rows_of_two_layouts_do_not(other: bytes) -> None:
    assert alike_codes(block(b"TAGS\x01a\x02KEYS\x01b", other)) is None
