"""Every page: it loads nothing, names cannot make elements, and a browser shows it; the report."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from PIL import Image
from typer.testing import Result

import lakelog
from lakelog_cli.commands.report import Content, read_content
from lakelog_cli.pages import BINS, TrafficOverTime
from lakelog_cli.statelines import GroupLag, group_lags
from plugins.lake.tests.maintenance.planting import change, without
from tests.bench.__main__ import main as measure
from tests.bench.model import LAKELOG, CannotRunError, Contender, Contest, Sample
from tests.bench.report import as_json
from tests.bench.rounds import play
from tests.bench.suites import SUITES
from tests.support.commands import invoke
from tests.support.required import missing

SEGMENT: Final = 65536
MESSAGES: Final = 1500
HOSTILE: Final = "<b>bold"
HOUR_MS: Final = 3_600_000
SMALL: Final = {"slots": 100, "entries": 400}
BROWSER: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--hide-scrollbars",
)
WIDTH, HEIGHT = 1160, 1200
SCHEMES: Final = {
    "light": ((255, 255, 255), (11, 122, 117)),
    "dark": ((13, 17, 23), (79, 209, 197)),
}
"""The colours of the background and of bars."""
DAMAGE_COLOURS: Final = {"light": (198, 40, 40), "dark": (255, 123, 114)}


def lakelog_command(*words: object) -> int:
    done = invoke(*words)
    assert done.exit_code in (0, 1), done.output
    return done.exit_code


def spoil(store: Path) -> None:
    second = sorted((store / "commitlog").iterdir())[1]
    with second.open("r+b") as file:
        file.seek(300)
        file.write(b"!!!!")


def store_in(folder: Path, name: str = HOSTILE) -> Path:
    """Make a store with a topic of a hostile name, usually in a folder of a hostile name."""
    path = folder / name
    with lakelog.open(path, segment_size_bytes=SEGMENT, hash_index=SMALL) as opened:
        for number in range(MESSAGES):
            topic = "visits" if number % 3 else HOSTILE
            keys = f"k{number}" if number % 2 else None
            opened.put(lakelog.Message(topic, b"x" * 60, keys=keys, queue_id=0))
        opened.wait_dispatched()
    return path


def store_to_show(folder: Path, *, bad: bool) -> Path:
    """Give a copy, in ``folder``, of the store beside it, which the first call makes."""
    source, path = folder.parent / "source", folder / HOSTILE
    if not source.exists():
        source.mkdir()
        store_in(source)
    shutil.copytree(source / HOSTILE, path)
    if bad:
        spoil(path)
    return path


def report(folder: Path, page: Path, *, bad: bool) -> None:
    store = store_to_show(folder, bad=bad)
    assert lakelog_command("report", store, "-o", page) == bad


def verify(folder: Path, page: Path, *, bad: bool) -> None:
    store = store_to_show(folder, bad=bad)
    assert lakelog_command("verify", store, "--all", "--html", page) == bad


def lake_verify(folder: Path, page: Path, *, bad: bool) -> None:
    store, table = store_to_show(folder, bad=False), f"parquet:{folder / 'table'}"
    assert lakelog_command("dispatch", store, "--to", table, "--engine", "processes", "--once") == 0
    if bad:
        change(folder / "table", "visits", lambda table: without(table, 1, 2))
    asked = ("lake", "verify", store, "--to", table, "--engine", "processes", "--html", page)
    assert lakelog_command(*asked) == bad


def bench(folder: Path, page: Path, *, bad: bool) -> None:
    """Play figures that are given: where it is bad, one store cannot run."""

    def absent(_directory: Path) -> Sample:
        raise CannotRunError(f"{HOSTILE} is not installed")

    def given(*rows_s: float) -> Callable[[Path], Sample]:
        figures = list(rows_s)
        return lambda _directory: {"rows_s": figures.pop(), "mb_s": 1.0}

    other = absent if bad else given(4000, 1000, 2000)
    stores = [Contender(LAKELOG, "group-commit", given(1000, 1000, 1000))]
    contest = Contest("1 KiB", [*stores, Contender(HOSTILE, "some settings", other)])
    rows = as_json(SUITES["put"], {"1 KiB": play(contest, 3, folder, lambda _: None)})
    file = folder / "figures.json"
    file.write_text(json.dumps({"machine": {"cpu": HOSTILE}, "rows": rows}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["bench", "--from", str(file), "--html", str(page)])
        measure()


Maker = Callable[..., None]
PAGES: Final[Mapping[str, Maker]] = {
    each.__name__: each for each in (report, verify, lake_verify, bench)
}


class Loaded(HTMLParser):
    """Collects what a page would load, and the elements that texts must not make."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "link", "img", "iframe"):
            self.found.append(tag)
        self.found += [f"{name}={value}" for name, value in attrs if name in ("src", "href")]


Pages = Mapping[tuple[str, bool], Path]
"""Every page, by its kind and whether there is something bad to show."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    parent = tmp_path_factory.mktemp("pages")
    made = {}
    for kind, bad in product(PAGES, (False, True)):
        folder = parent / f"{kind}-{bad}"
        folder.mkdir()
        made[kind, bad] = folder / "page.html"
        PAGES[kind](folder, made[kind, bad], bad=bad)
    return made


def test_a_page_loads_nothing_and_names_make_no_elements(pages: Pages) -> None:
    for page in pages.values():
        loaded = Loaded()
        loaded.feed(page.read_text())
        assert loaded.found == [], page
        assert "&lt;b&gt;bold" in page.read_text()
        assert HOSTILE not in page.read_text()


@pytest.mark.sample(1)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_every_page(pages: Pages, tmp_path: Path, scheme: str) -> None:
    pictures = _screenshot(list(pages.values()), tmp_path, scheme)
    back, main = SCHEMES[scheme]
    for (kind, bad), picture in zip(pages, pictures, strict=True):
        assert tuple(picture[2, 2]) == back, kind
        assert _count(picture, main) > 600, kind  # bars, and filled cells: a third of a cell each
        is_shown = _count(picture, DAMAGE_COLOURS[scheme]) > 100
        assert is_shown == (bad and kind != "bench"), (kind, bad)


def test_bars_of_the_bench_are_medians_with_their_range_and_ratios(tmp_path: Path) -> None:
    bench(tmp_path, tmp_path / "page.html", bad=False)
    [_, ours, other] = re.findall("<tr>.*?</tr>", (tmp_path / "page.html").read_text())
    shares = [re.findall(r"(?:left|width):([\d.]+)%", row) for row in (ours, other)]
    assert shares[0] == ["25.0", "25.0", "0.0", "50.0", "50.0"]
    assert shares[1] == ["50.0", "25.0", "75.0", "100.0", "50.0"]
    assert ("150%" in other, "2.00" in other) == (True, True)


def _count(picture: Any, colour: tuple[int, int, int]) -> int:
    return int((picture == np.array(colour, np.uint8)).all(axis=2).sum())


def _screenshot(pages: Sequence[Path], folder: Path, scheme: str) -> Any:
    """Show all pages, one below the other, in one start of the browser; a picture of each."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        missing("Chromium is not here (apt-get install chromium)")
    style = f"display: block; border: 0; width: {WIDTH}px; height: {HEIGHT}px"
    frames = "".join(f'<iframe style="{style}" src="{page.as_uri()}"></iframe>' for page in pages)
    sheet, picture = folder / "sheet.html", folder / "sheet.png"
    sheet.write_text(f'<!doctype html><body style="margin: 0">{frames}')
    chosen = json.dumps({"dark": 0, "light": 1}[scheme])
    command = [browser, *BROWSER, f"--blink-settings=preferredColorScheme={chosen}"]
    command += [f"--window-size={WIDTH},{HEIGHT * len(pages)}"]
    command += [f"--user-data-dir={folder / 'profile'}", f"--screenshot={picture}", sheet.as_uri()]
    subprocess.run(command, check=True, capture_output=True)
    shown = np.asarray(Image.open(picture).convert("RGB"))
    assert shown.shape == (HEIGHT * len(pages), WIDTH, 3)
    return np.split(shown, len(pages))


# --- the report of a store ---


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Give a store in which a topic has a hostile name, and a group lags."""
    path = store_in(tmp_path, "shop")
    with (
        lakelog.open(path) as opened,
        opened.consumer("billing", "visits", start="earliest") as one,
    ):
        assert len(one.poll(10)) == 10
        one.commit()
    return path


def content_of(store: Path) -> Content:
    with lakelog.open(store, mode="read") as opened:
        return read_content(opened)


def reported(store: Path, page: Path) -> Result:
    return invoke("report", store, "-o", page)


def test_everything_is_counted(store: Path) -> None:
    content = content_of(store)
    assert content.records == sum(content.traffic.messages) == MESSAGES
    assert {name: each.messages for name, each in content.topics.items()} == {
        HOSTILE: MESSAGES // 3,
        "visits": MESSAGES * 2 // 3,
    }
    assert sum(each.with_keys for each in content.topics.values()) == MESSAGES // 2
    with lakelog.open(store, mode="read") as opened:
        assert group_lags(opened) == [GroupLag("billing", "visits", MESSAGES * 2 // 3 - 10)]
        length = opened.max_offset - opened.min_offset
    total = sum(each.used_bytes for each in content.segments.segments)
    assert total == length
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
    done = reported(store, tmp_path / "page.html")
    assert done.exit_code == 1
    assert f'cell damaged" title="{SEGMENT:020}' in (tmp_path / "page.html").read_text()


def test_the_terminal_has_a_plot(store: Path) -> None:
    done = invoke("stats", store, "--plot")
    [messages] = [line for line in done.stdout.splitlines() if line.startswith("messages ")]
    assert len(messages.partition("[")[2].partition("]")[0]) == BINS // 2
    document = json.loads(invoke("stats", store, "--plot", "--json").stdout)
    assert sum(document["traffic"]["messages"]) == MESSAGES


def test_an_empty_store_has_a_page(tmp_path: Path) -> None:
    lakelog.open(tmp_path / "empty", segment_size_bytes=SEGMENT, hash_index=SMALL).close()
    done = reported(tmp_path / "empty", tmp_path / "page.html")
    assert done.exit_code == 0, done.output


def test_a_page_that_cannot_be_written_leaves_nothing(store: Path, tmp_path: Path) -> None:
    done = reported(store, tmp_path / "no folder" / "page.html")
    assert done.exit_code == 5
    assert "cannot be written" in done.output
    assert sorted(each.name for each in tmp_path.iterdir()) == ["shop"]


def test_a_link_stays_and_its_file_is_written(store: Path, tmp_path: Path) -> None:
    (tmp_path / "link.html").symlink_to(tmp_path / "page.html")
    assert reported(store, tmp_path / "link.html").exit_code == 0
    assert (tmp_path / "link.html").is_symlink()
    assert "<!doctype html>" in (tmp_path / "page.html").read_text()


def test_a_pipe_or_a_device_is_not_replaced(store: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 1 << 20)
    try:
        assert reported(store, pipe).exit_code == 0
        assert pipe.is_fifo()
        assert os.read(reader, 15) == b"<!doctype html>"
    finally:
        os.close(reader)
