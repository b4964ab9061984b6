"""`lakelog grep` finds the messages that a plain search in each body finds."""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakelog import Message
from lakelog.store.open import open_store
from lakelog_cli.commands.grep import Search
from lakelog_testing import record_batch
from plugins.tools.tests.cli.conftest import Run, spoil_second


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of three segments with a known content."""
    monkeypatch.delenv("LAKELOG_SEGMENT_SIZE_BYTES")
    path = tmp_path / "logs"
    with open_store(path, segment_size_bytes=65536) as opened:
        for number in range(1500):
            topic = "orders" if number % 3 else "visits"
            body = b"order %d of \xff\xfe" % number
            opened.put(Message(topic, body, tags=f"t{number % 2}", keys=[f"k{number}", "all"]))
    return path


def _numbers(output: str) -> list[int]:
    return [int(each) for each in re.findall(r"order (\d+) of", output)]


def test_processes_find_the_same_in_order(lakelog: Run, logs: Path) -> None:
    for processes in (1, 3):
        done = lakelog("grep", "-e", r"^order \d*3 ", logs, "--processes", processes)
        assert _numbers(done.stdout) == list(range(3, 1500, 10))


def test_every_condition(lakelog: Run, logs: Path) -> None:
    def found(*args: str) -> list[int]:
        return _numbers(lakelog("grep", *args, logs).stdout)

    assert found("order 77") == [77, *range(770, 780)]
    assert found("", "--topic", "visits") == list(range(0, 1500, 3))
    assert found("", "--tag", "t1", "--topic", "visits") == list(range(3, 1500, 6))
    assert found("", "--key", "k1234") == [1234]
    assert found("ORDER 12 ") == []
    assert found("-i", "ORDER 12 ") == [12]
    assert found("", "--limit", "2") == [0, 1]
    assert found("", "--until", "1 day ago") == []
    assert len(found("", "--since", "1 day ago")) == 1500
    done = lakelog("grep", "-c", "order 9", logs, logs)
    assert done.stdout.splitlines() == [f"{logs}: 111", f"{logs}: 111"]


def test_damage_is_reported_and_passed_over(lakelog: Run, store: Path) -> None:
    spoil_second(lakelog, store)
    done = lakelog("grep", "", store, "--json")
    assert done.returncode == 1
    assert "damaged" in done.stderr
    assert all(json.loads(line)["topic"] for line in done.stdout.splitlines())


def test_compressed_bodies_are_unpacked(lakelog: Run, tmp_path: Path) -> None:
    with open_store(tmp_path / "packed", segment_size_bytes=65536) as opened:
        opened.put(Message("orders", zlib.compress(b"a needle" * 50), sys_flag=1))
        opened.put(Message("orders", b"no zlib data", sys_flag=1))
    done = lakelog("grep", "needle", tmp_path / "packed", "--json")
    assert [json.loads(line)["physical_offset"] for line in done.stdout.splitlines()] == [0]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    bodies=st.lists(st.text("ab", max_size=6).map(str.encode), min_size=1, max_size=8),
    text=st.text("ab", min_size=1, max_size=3).map(str.encode),
    properties=st.text("ab", max_size=4),
)
def test_a_search_of_the_whole_run_finds_what_each_body_has(
    bodies: list[bytes], text: bytes, properties: str
) -> None:
    messages = [Message("ab", body, keys=properties or None) for body in bodies]
    batch = record_batch(messages)
    wanted = Search(re.compile(re.escape(text)), is_literal=True)
    assert wanted.matches(batch).tolist() == [n for n, b in enumerate(bodies) if text in b]
