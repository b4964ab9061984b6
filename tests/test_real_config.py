"""The files of config/ that a real broker wrote."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from lakelog.files.filesystem import RealFileSystem
from lakelog_queues.consumers.offsettable import OffsetTable
from lakelog_rocketmq.config import (
    load_delay_offsets,
    load_groups,
    load_offsets,
    load_topics,
    save_delay_offsets,
    save_groups,
    save_offsets,
    save_topics,
)
from lakelog_rocketmq.fastjson import encode_file, parse_object
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


@pytest.mark.parametrize(
    "name", ["consumerOffset.json", "delayOffset.json", "subscriptionGroup.json", "topics.json"]
)
def test_what_is_read_is_written_byte_for_byte(store_fixtures: StoreFixtures, name: str) -> None:
    data = (store_fixtures.get("real_broker").store / "config" / name).read_bytes()
    assert encode_file(parse_object(data), bare_keys=True) == data


def test_saves_write_the_bytes_of_a_real_broker(
    store_fixtures: StoreFixtures, tmp_path: Path
) -> None:
    """Also of entries that are new: only the counter and the time of the version differ."""
    theirs = store_fixtures.get("real_broker").store
    shutil.copytree(theirs / "config", tmp_path / "config")
    topics, groups = load_topics(FILES, theirs), load_groups(FILES, theirs)
    offsets, delays = load_offsets(FILES, theirs), load_delay_offsets(FILES, theirs)
    for content in (dict[str, Any](), None):
        loaded = (topics, groups, offsets, delays)
        former = [each.content if content is None else content for each in loaded]
        save_topics(FILES, tmp_path, former[0], topics.value, 7)
        save_groups(FILES, tmp_path, former[1], groups.value, 7)
        save_offsets(FILES, tmp_path, former[2], offsets.value, 7)
        save_delay_offsets(FILES, tmp_path, former[3], delays.value, 7)
        for file in (tmp_path / "config").glob("*.json"):
            expected = (theirs / "config" / file.name).read_bytes()
            assert _unversioned(file.read_bytes()) == _unversioned(expected)


def _unversioned(data: bytes) -> bytes:
    return re.sub(rb'"(counter|timestamp)":\d+', rb'"\1":0', data)


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
