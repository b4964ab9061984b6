"""Queues of batches end where they did at the last sync: a clean store is not read again."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakelog
from tests.support.fixtures import StoreFixtures


def test_a_recovery_of_a_clean_store_trusts_queues_of_batches(
    store_fixtures: StoreFixtures, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = store_fixtures.copy("batchcq", tmp_path)
    lakelog.recover(store.store, broker_conf=store.folder / "options")
    for _ in range(2):
        again = lakelog.recover(store.store, broker_conf=store.folder / "options")
        assert "a clean stop" in again.start_reason
    assert "lack" not in caplog.text
