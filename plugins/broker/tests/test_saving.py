"""The order of saving: the log is durable before the offsets that stand behind its messages."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import lakelog
from lakelog.errors import StoreError
from lakelog_broker.broker import Broker
from plugins.broker.tests.support import broker_over, save


@pytest.fixture
def broker(store: lakelog.Store) -> Broker:
    broker = broker_over(store)
    broker.offsets.set("billing", "orders", 0, 1)
    return broker


def flushing(broker: Broker, monkeypatch: pytest.MonkeyPatch, before: Callable[[], object]) -> None:
    """Call ``before`` at the begin of each flush of the log."""
    flush = broker.store.flush

    def flushed() -> int:
        before()
        return flush()

    monkeypatch.setattr(broker.store, "flush", flushed)


def test_an_offset_that_moves_during_the_flush_is_saved_by_the_next_save(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may stand behind a message that the flush has not made durable."""
    flushing(broker, monkeypatch, lambda: broker.offsets.set("billing", "orders", 0, 2))
    for saved in (1, 2):
        save(broker)
        assert broker.store.groups()["billing"] == {"orders": {0: saved}}


def test_offsets_of_a_failed_save_are_saved_by_the_next_one(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patched:
        flushing(broker, patched, fail)
        with pytest.raises(StoreError, match="full"):
            save(broker)
    assert "billing" not in broker.store.groups()
    save(broker)
    assert broker.store.groups()["billing"] == {"orders": {0: 1}}


def test_a_group_that_is_forgotten_during_a_save_stays_forgotten(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushing(broker, monkeypatch, lambda: broker.offsets.forget("billing"))
    save(broker)
    assert "billing" not in broker.store.groups()
