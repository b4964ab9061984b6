"""The order of saving: the log is durable before the offsets that stand behind its messages."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

import lakelog
from lakelog.errors import StoreError
from lakelog_broker.broker import Broker
from lakelog_broker.state import MODES_FILE, GroupOffsetTable, RequestModes
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


def test_an_odd_commit_stops_no_other_group(broker: Broker) -> None:
    """RocketMQ's brokers accept such names and offsets, too."""
    broker.offsets.set("billing.v2", "orders", 0, 2)
    broker.offsets.set("a@b", "orders", 1, 3)
    broker.offsets.set("odd", "orders", 0, -1)
    save(broker)
    again = GroupOffsetTable(broker.store)
    assert again.of_group("billing") == {"orders": {0: 1}}
    assert again.get("billing.v2", "orders", 0) == 2
    assert again.get("a@b", "orders", 1) == 3
    assert again.get("odd", "orders", 0) is None
    assert broker.offsets.get("odd", "orders", 0) is None


def test_a_mode_that_cannot_be_read_is_kept(broker: Broker) -> None:
    file = broker.path / "config" / MODES_FILE
    file.parent.mkdir(exist_ok=True)
    file.write_text('{"messageRequestModeMap": {"t": 7, "u": {"g": 1, "h": {"mode": "POP"}}}}')
    modes = RequestModes(broker.files, broker.path)
    assert (modes.of("u", "h"), modes.of("u", "g"), modes.of("t", "g")) == ("POP", "PULL", "PULL")
    modes.set("u", "i", "POP", 0)
    written = json.loads(file.read_bytes())["messageRequestModeMap"]
    assert (written["t"], written["u"]["g"], written["u"]["i"]["mode"]) == (7, 1, "POP")
