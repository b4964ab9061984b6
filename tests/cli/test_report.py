"""`lakelog report` counts what is in a store; a real browser shows it, light and dark."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

import lakelog
from lakelog_cli.app import make_app
from lakelog_cli.grouplags import GroupLag
from lakelog_cli.report.content import BINS, Content, TrafficOverTime, read_content
from tests.support.required import missing

SEGMENT: Final = 65536
MESSAGES: Final = 1500
HOUR_MS: Final = 3_600_000
BROWSER: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--window-size=1160,1200"),
)
SCHEMES: Final = {
    "light": ((255, 255, 255), (11, 122, 117)),
    "dark": ((13, 17, 23), (79, 209, 197)),
}
"""The colours of the background and of bars."""
DAMAGE_COLOURS: Final = {"light": (198, 40, 40), "dark": (255, 123, 114)}


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
    return CliRunner().invoke(make_app(), ["report", str(store), "-o", str(page)])


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
    total = sum(each.used_bytes for each in content.segments)
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
    assert [each.damaged_bytes > 0 for each in content.segments].index(True) == 1
    assert content.records == MESSAGES - 1
    done = report(store, tmp_path / "page.html")
    assert done.exit_code == 1
    assert f'cell damaged" title="{SEGMENT:020}' in (tmp_path / "page.html").read_text()


def test_the_terminal_has_a_plot(store: Path) -> None:
    done = CliRunner().invoke(make_app(), ["stats", str(store), "--plot"])
    [messages] = [line for line in done.stdout.splitlines() if line.startswith("messages ")]
    assert len(messages.partition("[")[2].partition("]")[0]) == BINS // 2
    document = json.loads(
        CliRunner().invoke(make_app(), ["stats", str(store), "--plot", "--json"]).stdout
    )
    assert sum(document["traffic"]["messages"]) == MESSAGES


class Loaded(HTMLParser):
    """Collects what a page would load, and the elements that texts must not make."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "link", "img", "iframe"):
            self.found.append(tag)
        self.found += [f"{name}={value}" for name, value in attrs if name in ("src", "href")]


def test_the_page_loads_nothing_and_escapes_names(store: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert report(store, page).exit_code == 0
    text = page.read_text()
    loaded = Loaded()
    loaded.feed(text)
    assert loaded.found == []
    assert "&lt;b&gt;bold" in text
    assert "<b>bold" not in text


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


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("damaged", [False, True])
def test_a_browser_shows_it(store: Path, tmp_path: Path, scheme: str, damaged: bool) -> None:
    if damaged:
        spoil(store)
    page = tmp_path / "page.html"
    report(store, page)
    picture = _screenshot(page, scheme)
    back, main = SCHEMES[scheme]
    assert tuple(picture[2, 2]) == back
    assert _count(picture, main) > 3000  # the bars of topics, and the cells of segments
    assert (_count(picture, DAMAGE_COLOURS[scheme]) > 100) == damaged


def _count(picture: Any, colour: tuple[int, int, int]) -> int:
    return int((picture == np.array(colour, np.uint8)).all(axis=2).sum())


def _screenshot(page: Path, scheme: str) -> Any:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        missing("Chromium is not here (apt-get install chromium)")
    picture, profile = page.with_suffix(".png"), page.parent / "profile"
    chosen = json.dumps({"dark": 0, "light": 1}[scheme])
    command = [browser, *BROWSER, f"--blink-settings=preferredColorScheme={chosen}"]
    command += [f"--user-data-dir={profile}", f"--screenshot={picture}", page.as_uri()]
    subprocess.run(command, check=True, capture_output=True)
    return np.asarray(Image.open(picture).convert("RGB"))
