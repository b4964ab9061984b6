"""Settings of the master's topics, groups and delay levels come to a replica."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakelog
from lakelog.files.filesystem import RealFileSystem
from lakelog_replication.remoting import BrokerRefused
from lakelog_replication.replica.receiver import copy_configs
from lakelog_replication.settings import Address
from lakelog_rocketmq.fastjson import parse_object
from lakelog_testing.scripted import ScriptedMaster
from plugins.replication.tests.brokers import body, brokering, response, runtime
from plugins.replication.tests.replica.copies import SEGMENT, bodies, make_log, replica, until

TOPICS = {"topicConfigTable": {"t": {"topicName": "t"}}, "dataVersion": {"counter": 4}}
GROUPS = {"subscriptionGroupTable": {"g": {"groupName": "g"}}, "dataVersion": {"counter": 2}}
ANSWERS = {
    21: body({**TOPICS, "mappingDataVersion": {"counter": 1}, "topicQueueMappingDetailMap": {}}),
    45: response(b'{"offsetTable":{3:17}}'),
    201: body({**GROUPS, "forbiddenTable": {}}),
}


def copied(path: Path, name: str) -> object:
    file = path / "config" / name
    return parse_object(file.read_bytes()) if file.exists() else None


def copy(broker: str, path: Path) -> None:
    copy_configs(Address.parse(broker), RealFileSystem(), path)


def test_each_file_is_as_the_broker_writes_it(tmp_path: Path) -> None:
    with brokering(ANSWERS) as broker:
        copy(broker, tmp_path)
    assert copied(tmp_path, "topics.json") == TOPICS
    assert copied(tmp_path, "subscriptionGroup.json") == {**GROUPS, "forbiddenTable": {}}


def test_what_has_not_changed_is_not_written_again(tmp_path: Path) -> None:
    with brokering(ANSWERS) as broker:
        copy(broker, tmp_path)
        before = {each: each.stat().st_ino for each in (tmp_path / "config").iterdir()}
        copy(broker, tmp_path)
        assert {each: each.stat().st_ino for each in (tmp_path / "config").iterdir()} == before
    other = {**TOPICS, "topicConfigTable": {"u": {"topicName": "u"}}}
    with brokering({**ANSWERS, 21: body(other)}) as broker:
        copy(broker, tmp_path)
    assert copied(tmp_path, "topics.json") == other
    assert copied(tmp_path, "topics.json.bak") == TOPICS


def test_what_is_no_answer_changes_nothing(tmp_path: Path) -> None:
    with brokering(ANSWERS) as broker:
        copy(broker, tmp_path)
    for answer in (body({}), body([]), response(b"<html>"), response(code=1)):
        with brokering({**ANSWERS, 21: answer}) as broker, pytest.raises(BrokerRefused):
            copy(broker, tmp_path)
        assert copied(tmp_path, "topics.json") == TOPICS


def test_a_replica_copies_them_by_itself(tmp_path: Path) -> None:
    """Progress comes once the replica has the log that its master had then."""
    path, log = tmp_path / "copy", make_log(tmp_path / "master", 10)
    offsets = response(b'{"offsetTable":{"t@g":{0:3},"t@a@b":{0:-1}}}')
    with (
        ScriptedMaster(log, segment_bytes=SEGMENT) as master,
        brokering(
            {**ANSWERS, 43: offsets, 28: runtime(commitLogMinOffset=0, commitLogMaxOffset=1 << 40)}
        ) as ahead,
        replica(path, master.address, broker=ahead, groups_interval_ms=20),
    ):
        until(lambda: copied(path, "subscriptionGroup.json") is not None)
        assert copied(path, "topics.json") == TOPICS
        assert copied(path, "delayOffset.json") is None
        assert copied(path, "consumerOffset.json") is None
    with (
        ScriptedMaster(log, segment_bytes=SEGMENT) as master,
        brokering(
            {**ANSWERS, 43: offsets, 28: runtime(commitLogMinOffset=0, commitLogMaxOffset=1)}
        ) as broker,
        replica(path, master.address, broker=broker, groups_interval_ms=20),
    ):
        until(lambda: copied(path, "delayOffset.json") is not None)
        assert copied(path, "delayOffset.json") == {"offsetTable": {"3": 17}}
        until(lambda: copied(path, "consumerOffset.json") is not None)
        found = parse_object((path / "config" / "consumerOffset.json").read_bytes())
        assert found["offsetTable"] == {"t@g": {"0": 3}, "t@a@b": {"0": -1}}


def test_offsets_beyond_the_end_are_set_back_by_a_promotion_only(tmp_path: Path) -> None:
    """A replica receives the messages that they count; its master may not come back."""
    path, log = tmp_path / "copy", make_log(tmp_path / "master", 10)
    file, end = path / "config" / "consumerOffset.json", 0
    with ScriptedMaster(log, segment_bytes=SEGMENT) as master:
        for _ in range(2):
            with replica(path, master.address) as store:
                until(lambda store=store: len(bodies(store)) == 10)  # type: ignore[misc]  # mypy infers no type of a lambda with a default
                store.wait_dispatched()
                (end,) = (each.max_offset for each in store.queues("orders") if not each.queue_id)
            if file.exists():
                assert parse_object(file.read_bytes())["offsetTable"] == {"orders@g": {"0": 100}}
            file.parent.mkdir(exist_ok=True)
            file.write_text('{"offsetTable": {"orders@g": {"0": 100}}}')
    lakelog.promote(path)
    with lakelog.open(path, segment_size_bytes=SEGMENT) as store:
        assert store.groups() == {"g": {"orders": {0: end}}}
        assert end < 100
