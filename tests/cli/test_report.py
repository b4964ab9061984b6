"""`lakelog report` counts what is in a store, and writes it where the user wants it."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Final

import pytest
from typer.testing import Result

import lakelog
from lakelog_cli.grouplags import GroupLag
from lakelog_cli.report.content import BINS, Content, TrafficOverTime, read_content
from tests.support.commands import invoke

SEGMENT: Final = 65536
MESSAGES: Final = 1500
HOUR_MS: Final = 3_600_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Give a store in which a topic has a hostile name, and a group lags."""
    path = tmp_path / "shop"
    with lakelog.open(path, segment_size_bytes=SEGMENT, hash_index=_SMALL) as opened:
        for number in range(MESSAGES):
            topic = "visits" if number % 3 else "<b>bold"
            keys = f"k{number}" if number % 2 else None
            opened.put(lakelog.Message(topic, b"x" * 60, keys=keys, queue_id=0))
        opened.wait_dispatched()
        with opened.consumer("billing", "visits", start="earliest") as consumer:
            assert len(consumer.poll(10)) == 10
            consumer.commit()
    return path


_SMALL: Final = {"slots": 100, "entries": 400}


def content_of(store: Path) -> Content:
    with lakelog.open(store, mode="read") as opened:
        return read_content(opened, lambda _: None)


def report(store: Path, page: Path) -> Result:
    return invoke("report", store, "-o", page)


def spoil(store: Path) -> None:
    second = sorted((store / "commitlog").iterdir())[1]
    with second.open("r+b") as file:
        file.seek(300)
        file.write(b"!!!!")


def test_everything_is_counted(store: Path) -> None:
    content = content_of(store)
    assert content.records == sum(content.traffic.messages) == MESSAGES
    assert {name: each.messages for name, each in content.topics.items()} == {
        "<b>bold": MESSAGES // 3,
        "visits": MESSAGES * 2 // 3,
    }
    assert sum(each.with_keys for each in content.topics.values()) == MESSAGES // 2
    assert content.groups == [GroupLag("billing", "visits", MESSAGES * 2 // 3 - 10)]
    total = sum(each.used_bytes for each in content.segments.segments)
    assert total == content.max_offset - content.min_offset
    assert sum(content.traffic.record_bytes) <= total
    assert not content.damages


def test_the_growth_is_that_of_the_last_day() -> None:
    days = TrafficOverTime(
        0, 2 * 24 * HOUR_MS - 1, record_bytes=[7] * (BINS // 2) + [100] * (BINS // 2)
    )
    assert days.growth_bytes_per_day == pytest.approx(100 * BINS / 2)
    assert TrafficOverTime(0, HOUR_MS // 2, record_bytes=[100] * BINS).growth_bytes_per_day is None


def test_damage_has_its_place(store: Path, tmp_path: Path) -> None:
    spoil(store)
    content = content_of(store)
    assert [each.damaged_bytes > 0 for each in content.segments.segments].index(True) == 1
    assert content.records == MESSAGES - 1
    done = report(store, tmp_path / "page.html")
    assert done.exit_code == 1
    assert f'cell damaged" title="{SEGMENT:020}' in (tmp_path / "page.html").read_text()


def test_the_terminal_has_a_plot(store: Path) -> None:
    done = invoke("stats", store, "--plot")
    [messages] = [line for line in done.stdout.splitlines() if line.startswith("messages ")]
    assert len(messages.partition("[")[2].partition("]")[0]) == BINS // 2
    document = json.loads(invoke("stats", store, "--plot", "--json").stdout)
    assert sum(document["traffic"]["messages"]) == MESSAGES


def test_an_empty_store_has_a_page(tmp_path: Path) -> None:
    lakelog.open(tmp_path / "empty", segment_size_bytes=SEGMENT, hash_index=_SMALL).close()
    done = report(tmp_path / "empty", tmp_path / "page.html")
    assert done.exit_code == 0, done.output


def test_a_page_that_cannot_be_written_leaves_nothing(store: Path, tmp_path: Path) -> None:
    done = report(store, tmp_path / "no folder" / "page.html")
    assert done.exit_code == 5
    assert "cannot be written" in done.output
    assert sorted(each.name for each in tmp_path.iterdir()) == ["shop"]


def test_a_link_stays_and_its_file_is_written(store: Path, tmp_path: Path) -> None:
    (tmp_path / "link.html").symlink_to(tmp_path / "page.html")
    assert report(store, tmp_path / "link.html").exit_code == 0
    assert (tmp_path / "link.html").is_symlink()
    assert "<!doctype html>" in (tmp_path / "page.html").read_text()


def test_a_pipe_or_a_device_is_not_replaced(store: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 1 << 20)
    try:
        assert report(store, pipe).exit_code == 0
        assert pipe.is_fifo()
        assert os.read(reader, 15) == b"<!doctype html>"
    finally:
        os.close(reader)
