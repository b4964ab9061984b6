"""Messages by columns are those by the scalar path."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from core.tests.arrow.test_columns import MESSAGES
from core.tests.codec.support import log_of
from lakelog.codec import decode_run
from lakelog.message import Message
from lakelog.reading.messages import messages


@given(put=st.lists(MESSAGES, max_size=6))
@settings(deadline=None)
def test_they_equal_messages_decoded_one_by_one(put: list[Message]) -> None:
    batch = decode_run(log_of(put))
    assert len(batch) == len(put)
    one_by_one = [batch.message(at) for at in range(len(batch))]
    found = messages(batch)
    assert found == one_by_one
    for a, b in zip(found, one_by_one, strict=True):
        kinds = [type(getattr(each, name)) for each in (a, b) for name in each.__slots__[:17]]
        assert kinds[:17] == kinds[17:]
