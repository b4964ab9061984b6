"""Every page: it loads nothing, names cannot make elements, and a browser shows it."""

from __future__ import annotations

import json
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

import lakelog
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


def store_in(folder: Path) -> Path:
    """Make a store with a topic of a hostile name, in a folder of a hostile name."""
    path = folder / HOSTILE
    small = {"slots": 100, "entries": 400}
    with lakelog.open(path, segment_size_bytes=SEGMENT, hash_index=small) as opened:
        for number in range(MESSAGES):
            topic = "visits" if number % 3 else HOSTILE
            opened.put(lakelog.Message(topic, b"x" * 60, queue_id=0))
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
