"""The files of config/ that a real broker wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelog.files.filesystem import RealFileSystem
from lakelog_queues.consumers.offsettable import OffsetTable
from lakelog_rocketmq.config import load_delay_offsets, load_offsets, load_topics, save_offsets
from tests.support.fixtures import StoreFixtures

FILES = RealFileSystem()
OFFSETS = {0: 500, 1: 490, 2: 500, 3: 490}


def test_a_real_broker_s_files(store_fixtures: StoreFixtures) -> None:
    store = store_fixtures.get("real_broker").store
    assert load_offsets(FILES, store).value == {"SmokeTopic@smoke_consumer": OFFSETS}
    assert load_delay_offsets(FILES, store).value == {1: 14}
    topics = load_topics(FILES, store).value
    assert topics["SmokeTopic"].read_queues == 4
    assert topics["SCHEDULE_TOPIC_XXXX"].write_queues == 18
    assert not any("queue.type" in each.attributes for each in topics.values())


def test_batch_topics(store_fixtures: StoreFixtures) -> None:
    topics = load_topics(FILES, store_fixtures.get("batchcq").store).value
    assert topics["BatchTopic"].attributes == {"queue.type": "BatchCQ"}


def test_a_commit_keeps_what_the_broker_wrote(
    store_fixtures: StoreFixtures, tmp_path: Path
) -> None:
    store = store_fixtures.copy("real_broker", tmp_path).store
    broker_wrote = (store / "config" / "consumerOffset.json").read_bytes()
    topics = (store / "config" / "topics.json").read_bytes()
    OffsetTable(FILES, store, lambda: True).commit("mine", "SmokeTopic", {2: 7})
    loaded = load_offsets(FILES, store)
    assert loaded.value == {"SmokeTopic@smoke_consumer": OFFSETS, "SmokeTopic@mine": {2: 7}}
    assert loaded.content["dataVersion"]["counter"] == 1
    assert (store / "config" / "consumerOffset.json.bak").read_bytes() == broker_wrote
    assert (store / "config" / "topics.json").read_bytes() == topics


def test_cut_in_half_the_backup_counts(
    store_fixtures: StoreFixtures, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = store_fixtures.copy("real_broker", tmp_path).store
    file = store / "config" / "consumerOffset.json"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    loaded = load_offsets(FILES, store)
    assert loaded.value == {"SmokeTopic@smoke_consumer": OFFSETS}
    save_offsets(FILES, store, loaded.content, loaded.value, 1)
    caplog.clear()
    load_offsets(FILES, store)
    assert caplog.records == []
