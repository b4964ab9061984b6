"""The choice between file and backup; a replacement never leaves half a file."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.errors import CorruptConfig
from lakelog.files.filesystem import File, RealFileSystem
from lakelog_rocketmq.config import (
    DELAY_OFFSETS,
    GROUPS,
    TOPICS,
    GroupConfig,
    Table,
    TopicConfig,
    backup_of,
    load_delay_offsets,
    load_groups,
    load_offsets,
    load_topics,
    save_config,
    save_delay_offsets,
    save_groups,
    save_offsets,
    save_topics,
)
from lakelog_rocketmq.config import OFFSETS as OFFSETS_TABLE
from lakelog_rocketmq.fastjson import parse_object

FILES = RealFileSystem()
OFFSETS = b"""{
\t"dataVersion":{
\t\t"counter":4,
\t\t"stateVersion":2,
\t\t"timestamp":1795217600164
\t},
\t"somethingNew":{"a":[1,null]},
\t"offsetTable":{
\t\t"T@g":{0:500,1:490,10:3
\t\t}
\t}
}"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    return tmp_path


def main_file(path: Path) -> Path:
    return path / "config" / "consumerOffset.json"


@pytest.mark.parametrize(
    "torn",
    [
        OFFSETS[: len(OFFSETS) // 2],
        b"",
        None,
        b"\x00" * 200,
        b'{"offsetTable":[1]}',
    ],
)
def test_the_backup_is_used_and_said(
    torn: bytes | None, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backup_of(main_file(path)).write_bytes(OFFSETS)
    if torn is not None:
        main_file(path).write_bytes(torn)
    with caplog.at_level(logging.WARNING):
        loaded = load_offsets(FILES, path)
    assert loaded.value == {"T@g": {0: 500, 1: 490, 10: 3}}
    assert str(main_file(path)) in caplog.text
    assert "using consumerOffset.json.bak" in caplog.text


@pytest.mark.parametrize("backup", [None, b"", b"{"])
def test_neither_can_be_read(backup: bytes | None, path: Path) -> None:
    main_file(path).write_bytes(OFFSETS[:-9])
    if backup is not None:
        backup_of(main_file(path)).write_bytes(backup)
    with pytest.raises(CorruptConfig, match=r"consumerOffset\.json \(\d+ bytes\) cannot be read"):
        load_offsets(FILES, path)


def test_what_is_not_known_is_kept_and_the_version_moves_on(path: Path) -> None:
    assert load_offsets(FILES, path).value == {}
    main_file(path).write_bytes(OFFSETS)
    loaded = load_offsets(FILES, path)
    assert loaded.value == {"T@g": {0: 500, 1: 490, 10: 3}}
    offsets = {**loaded.value, "%RETRY%g@g": {0: 1}, "odd": {5: 6}}
    save_offsets(FILES, path, loaded.content, offsets, now_ms=1795217700000)
    assert parse_object(main_file(path).read_bytes()) == {
        "dataVersion": {"counter": 5, "stateVersion": 2, "timestamp": 1795217700000},
        "somethingNew": {"a": [1, None]},
        "groupTopicMap": {"g": ["T", "%RETRY%g"]},
        "offsetTable": {
            "T@g": {"0": 500, "1": 490, "10": 3},
            "%RETRY%g@g": {"0": 1},
            "odd": {"5": 6},
        },
    }
    assert backup_of(main_file(path)).read_bytes() == OFFSETS
    assert load_offsets(FILES, path).value == offsets
    assert sorted(each.name for each in (path / "config").iterdir()) == [
        "consumerOffset.json",
        "consumerOffset.json.bak",
    ]


ODD_OFFSETS = b"""{"offsetTable": {
    "T@g": {0: 500, 1: "a", "x": 1, 2: 9223372036854775808, 3: null, 4: -1}, "T@h": 7, "T@i": null,
    "a": {0: 1}, "T@a@b": {0: 2}, "T@billing.v2": {0: 3}, "U@g": {0: 1}}}"""


def test_an_entry_that_cannot_be_read_stops_no_other(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    main_file(path).write_bytes(ODD_OFFSETS)
    caplog.clear()
    loaded = load_offsets(FILES, path)
    sound = {"a": {0: 1}, "T@a@b": {0: 2}, "T@billing.v2": {0: 3}, "U@g": {0: 1}}
    assert loaded.value == {"T@g": {0: 500, 4: -1}, **sound}
    odd = {"1": "a", "x": 1, "2": 1 << 63, "3": None}
    assert OFFSETS_TABLE.odd(loaded.content) == {"T@g": odd, "T@h": 7, "T@i": None}
    assert "offsetTable['T@h'] is 7, which cannot be read; it is kept as it is" in caplog.text
    assert len(caplog.records) == 3
    load_offsets(FILES, path)
    assert len(caplog.records) == 3, "it is reported once"
    changed = {**loaded.value, "T@g": {0: 501, 1: 5}, "T@h": {0: 8}}
    save_offsets(FILES, path, loaded.content, changed, 5)
    written = parse_object(main_file(path).read_bytes())["offsetTable"]
    assert written == {
        "T@g": {**odd, "0": 501, "1": 5},
        "T@h": {"0": 8},
        "T@i": None,
        **{name: {str(key): at for key, at in table.items()} for name, table in sound.items()},
    }


def test_odd_topics_groups_and_levels_stop_no_others(path: Path) -> None:
    tables: dict[Table[Any], tuple[dict[str, Any], dict[str, Any]]] = {
        TOPICS: ({"t": {"readQueueNums": 3}}, {"u": 1, "v": {"perm": "x"}}),
        GROUPS: ({"g": {"retryMaxTimes": 3}}, {"h": None, "i": {"retryMaxTimes": []}}),
        DELAY_OFFSETS: ({"3": 17}, {"x": 1, "4": "a"}),
    }
    for table, (sound, odd) in tables.items():
        content = {table.name: {**odd, **sound}}
        (path / "config" / table.file).write_text(json.dumps(content))
        assert len(table.load(FILES, path).value) == 1
        assert table.odd(content) == odd
    topics, groups = load_topics(FILES, path), load_groups(FILES, path)
    save_topics(FILES, path, topics.content, {**topics.value, "w": TopicConfig("w")}, 5)
    save_groups(FILES, path, groups.content, {**groups.value, "j": GroupConfig("j")}, 5)
    save_delay_offsets(FILES, path, load_delay_offsets(FILES, path).content, {3: 18}, 5)
    for table, (sound, odd) in tables.items():
        written = parse_object((path / "config" / table.file).read_bytes())
        assert table.odd(written) == odd
        assert table.read(written).keys() >= sound.keys()
    assert load_delay_offsets(FILES, path).value == {3: 18}


def test_a_torn_file_does_not_take_the_place_of_its_backup(path: Path) -> None:
    main_file(path).write_bytes(OFFSETS[:50])
    backup_of(main_file(path)).write_bytes(OFFSETS)
    save_config(FILES, main_file(path), {"new": 1})
    assert backup_of(main_file(path)).read_bytes() == OFFSETS
    assert parse_object(main_file(path).read_bytes()) == {"new": 1}


@attrs.frozen
class FullDisk(RealFileSystem):
    """Allows a limited number of opens for writing, then none."""

    tickets: list[None]

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        if write:
            if not self.tickets:
                raise OSError(28, "No space left on device", str(path))
            self.tickets.pop()
        return RealFileSystem.open(self, path, write=write, create=create)


@pytest.mark.parametrize("opens", [0, 1])
def test_a_full_disk_leaves_what_was_there(opens: int, path: Path) -> None:
    main_file(path).write_bytes(OFFSETS)
    with pytest.raises(OSError, match="No space left"):
        save_config(FullDisk([None] * opens), main_file(path), {"new": 1})
    assert main_file(path).read_bytes() == OFFSETS
    assert not [each for each in (path / "config").iterdir() if each.suffix == ".tmp"]


_COMMITTER = """
import sys
from pathlib import Path
from lakelog_queues.consumers.offsettable import OffsetTable
from lakelog.files.filesystem import RealFileSystem
table = OffsetTable(RealFileSystem(), Path(sys.argv[1]), lambda: True)
at = table.committed("g", "T").get(0, 0)
while True:
    at += 1
    table.commit("g", "T", {0: at, 1: at})
    print(at, flush=True)
"""


def test_a_kill_in_the_middle_of_commits_loses_none_that_returned(path: Path) -> None:
    for round_ in range(3):
        command = [sys.executable, "-c", _COMMITTER, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.03 + 0.013 * round_)
            os.kill(process.pid, signal.SIGKILL)
            told = [int(line) for line in process.stdout if line.endswith("\n")]
        loaded = load_offsets(FILES, path)
        offsets = loaded.value["T@g"]
        assert offsets[0] == offsets[1]
        assert offsets[0] >= max(told, default=1)


def test_topics_that_were_written_are_read_and_keep_what_is_not_known(path: Path) -> None:
    file = path / "config" / "topics.json"
    file.write_text(
        '{"more":1,"topicConfigTable":{"old":{"topicName":"old","perm":6,"order":true,'
        '"readQueueNums":4,"writeQueueNums":4},"gone":{}}}'
    )
    loaded = load_topics(FILES, path)
    topics = dict(loaded.value)
    assert topics.pop("gone") == TopicConfig("gone", 16, 16, 6, {})
    topics["old"] = attrs.evolve(topics["old"], write_queues=8)
    topics["new"] = TopicConfig("new", 2, 3, 4, {"queue.type": "BatchCQ"})
    save_topics(FILES, path, loaded.content, topics, 5)
    again = load_topics(FILES, path)
    assert again.value == topics
    assert again.content["more"] == 1
    assert again.content["dataVersion"] == {"stateVersion": 0, "counter": 1, "timestamp": 5}
    table = json.loads(file.read_bytes())["topicConfigTable"]
    assert (table["old"]["order"], table["old"]["writeQueueNums"]) == (True, 8)
    assert table["new"] == {
        "attributes": {"queue.type": "BatchCQ"},
        "order": False,
        "perm": 4,
        "readQueueNums": 2,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "new",
        "topicSysFlag": 0,
        "writeQueueNums": 3,
    }


def test_delay_offsets_that_were_written_are_read(path: Path) -> None:
    (path / "config" / "delayOffset.json").write_bytes(b'{"offsetTable":{3:14,1:2\n\t},"more":[]}')
    loaded = load_delay_offsets(FILES, path)
    save_delay_offsets(FILES, path, loaded.content, {**loaded.value, 18: 7}, 5)
    again = load_delay_offsets(FILES, path)
    assert again.value == {1: 2, 3: 14, 18: 7}
    assert again.content["more"] == []


def test_groups_that_were_written_are_read_and_keep_what_is_not_known(path: Path) -> None:
    file = path / "config" / "subscriptionGroup.json"
    old = {"groupName": "old", "retryMaxTimes": 3, "consumeEnable": False, "attributes": {"a": "b"}}
    table = {"old": old, "plain": {}, "gone": {}}
    file.write_text(json.dumps({"more": 1, "subscriptionGroupTable": table}))
    loaded = load_groups(FILES, path)
    assert loaded.value == {
        "old": GroupConfig("old", 3, attributes={"a": "b"}),
        "plain": GroupConfig("plain", 16),
        "gone": GroupConfig("gone", 16),
    }
    former = {"old": GroupConfig("old", 4, attributes={"a": "b"})}
    groups = {**former, "new": GroupConfig("new", 0)}
    save_groups(FILES, path, loaded.content, groups, 5)
    again = load_groups(FILES, path)
    assert again.value == groups
    assert again.content["more"] == 1
    assert again.content["dataVersion"] == {"stateVersion": 0, "counter": 1, "timestamp": 5}
    written = json.loads(file.read_bytes())["subscriptionGroupTable"]
    assert written["old"] == {**old, "retryMaxTimes": 4, "consumeMessageOrderly": False}
    new = written["new"]
    assert (new["groupName"], new["retryMaxTimes"], new["consumeEnable"]) == ("new", 0, True)


@pytest.mark.parametrize("text", ['{"subscriptionGroupTable":[]}', "{", '{"a":1'])
def test_a_file_that_cannot_be_parsed(path: Path, text: str) -> None:
    file = path / "config" / "subscriptionGroup.json"
    file.write_text(text)
    with pytest.raises(CorruptConfig, match=r"subscriptionGroup\.json"):
        load_groups(FILES, path)


# --- JSON as fastjson writes it ---


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text() | st.integers().map(str), inner, max_size=3)
    ),
    max_leaves=12,
)


def as_fastjson(value: Any, space: str) -> str:
    """Write a value as JSON, but integer keys bare."""
    if isinstance(value, dict):
        pairs = (
            f"{space}{_key(key)}{space}:{as_fastjson(each, space)}" for key, each in value.items()
        )
        return "{" + ",".join(pairs) + space + "}"
    if isinstance(value, list):
        return "[" + ",".join(as_fastjson(each, space) for each in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def _key(key: str) -> str:
    is_integer = key.removeprefix("-").isascii() and key.removeprefix("-").isdigit()
    return key if is_integer else json.dumps(key, ensure_ascii=False)


@given(
    st.dictionaries(st.text() | st.integers().map(str), VALUES),
    st.sampled_from(["", " ", "\n\t", "\r\n"]),
)
def test_any_object_with_bare_integer_keys_is_read_as_with_quoted_ones(
    value: dict[str, Any], space: str
) -> None:
    assert parse_object(as_fastjson(value, space).encode(errors="surrogatepass")) == value


@given(VALUES)
def test_strict_json_stays_as_it_is(value: object) -> None:
    assert parse_object(json.dumps({"a": value}).encode()) == {"a": value}


@pytest.mark.parametrize(
    "inside", ["{0:1}", ',1:{"', "\\", '\\"', 'a\\\\":2,', "\n", "//", "0:", "é{3:"]
)
def test_the_inside_of_strings_is_left_alone(inside: str) -> None:
    text = json.dumps({"a": inside, inside: [inside]}, ensure_ascii=False)
    assert parse_object(text.replace("{", "{7:{},", 1).encode()) == {
        "7": {},
        "a": inside,
        inside: [inside],
    }


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b" ", b"[1]", b"null", b"7", b"{0:1", b'{"a":"', b"{0 1:2}", b"{0:1}}"),
        *(b"\xff\xfe{}", b"\x00" * 64, b"[" * 100_000, b'{"a":' * 100_000, b"{,0:1}"),
        b"{0:1}{0:2}",
    ],
)
def test_everything_else_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # json has errors of its own
        parse_object(content)


def test_of_a_key_that_repeats_the_last_value_counts() -> None:
    assert parse_object(b'{"0":1,0:2}') == {"0": 2}
