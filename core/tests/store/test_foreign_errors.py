"""A strategy raises what is none of our errors: its puts are told so, and the store goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.tests.attach.support import an_owned_hub
from lakelog import Message, PutStatus
from lakelog.attach.producer import connect
from lakelog.builtin.flush import NoFlush
from lakelog.errors import StoreFailed
from lakelog.interfaces import Outcome
from lakelog.testing.crash.opener import owned_by


class Fault(Exception):
    """Of somebody's strategy."""


class Later:
    """An outcome that comes to a fault."""

    def done(self) -> bool:
        return True

    def result(self, timeout: float | None = None) -> PutStatus:
        raise Fault("at last")

    def add_done_callback(self, fn: Callable[[Any], object], /) -> None:
        fn(self)


class Faulty(NoFlush):
    """Raises at its first put, or lets that one's outcome raise."""

    def __init__(self, first: Outcome | None) -> None:
        super().__init__()
        self.first = first
        self.heard = 0

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        self.heard += 1
        if self.heard > 1:
            return super().submit(end_offset, wait)
        if self.first is None:
            raise Fault("at once")
        return self.first


M = Message("t", b"x", queue_id=0)
PUTS: dict[str, Callable[[Any], Any]] = {
    "put": lambda store: store.put(M),
    "put_batch": lambda store: store.put_batch([M, M]),
    "put_async": lambda store: store.put_async(M).result(10),
    "put_batch_async": lambda store: store.put_batch_async([M, M]).result(10),
}


@pytest.mark.parametrize("attached", [False, True])
@pytest.mark.parametrize("put", PUTS)
@pytest.mark.parametrize("first", [None, Later()], ids=["at once", "at last"])
def test_a_put_is_told_and_the_next_one_is_not(
    tmp_path: Path, first: Outcome | None, put: str, attached: bool
) -> None:
    with an_owned_hub(tmp_path) as (store, _):
        appender = owned_by(store).appender
        flush, appender._flush = appender._flush, Faulty(first)
        producer = connect(tmp_path) if attached else store
        with pytest.raises(StoreFailed if attached else Fault, match=r"at once|at last"):
            PUTS[put](producer)
        confirmed = store.max_offset
        assert confirmed == owned_by(store).log.appended > 0
        assert producer.put(M).physical_offset == confirmed
        store.wait_dispatched()
        assert len(store.get("t", 0, 0, 10).messages) == (3 if "batch" in put else 2)
        if attached:
            producer.close()
        appender._flush = flush
