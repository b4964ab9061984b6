"""The configuration of consumer groups is read, and written without the loss of other fields."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakelog.errors import CorruptConfig
from lakelog.files.filesystem import RealFileSystem
from lakelog_rocketmq.config.groups import GroupConfig, load_groups, save_groups

FILES = RealFileSystem()


def test_groups_that_were_written_are_read_and_keep_what_is_not_known(tmp_path: Path) -> None:
    file = tmp_path / "config" / "subscriptionGroup.json"
    file.parent.mkdir()
    old = {"groupName": "old", "retryMaxTimes": 3, "consumeEnable": False, "attributes": {"a": "b"}}
    table = {"old": old, "plain": {}, "gone": {}}
    file.write_text(json.dumps({"more": 1, "subscriptionGroupTable": table}))
    loaded = load_groups(FILES, tmp_path)
    assert loaded.value == {
        "old": GroupConfig("old", 3),
        "plain": GroupConfig("plain", 16),
        "gone": GroupConfig("gone", 16),
    }
    groups = {"old": GroupConfig("old", 4), "new": GroupConfig("new", 0)}
    save_groups(FILES, tmp_path, loaded.content, groups, 5)
    again = load_groups(FILES, tmp_path)
    assert again.value == groups
    assert again.content["more"] == 1
    assert again.content["dataVersion"] == {"stateVersion": 0, "counter": 1, "timestamp": 5}
    written = json.loads(file.read_bytes())["subscriptionGroupTable"]
    assert written["old"] == {**old, "retryMaxTimes": 4}
    new = written["new"]
    assert (new["groupName"], new["retryMaxTimes"], new["consumeEnable"]) == ("new", 0, True)


@pytest.mark.parametrize("text", ['{"subscriptionGroupTable":[]}', "{", '{"a":1'])
def test_a_file_that_cannot_be_parsed(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config" / "subscriptionGroup.json"
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(CorruptConfig, match=r"subscriptionGroup\.json"):
        load_groups(FILES, tmp_path)
