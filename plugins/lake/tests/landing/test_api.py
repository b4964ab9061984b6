"""Landing from Python: the public names of the package, and the snippet of its README."""

from __future__ import annotations

import re
from pathlib import Path
from threading import Event

import pytest

import lakelog
import lakelog_lake
from lakelog.errors import SettingsError
from lakelog_lake import Landing, LandingResult
from lakelog_lake.landing.dispatcher import Landed
from plugins.lake.tests.landing.tables import assert_exactly, keys_of
from plugins.lake.tests.stores import filled, open_small

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return filled(tmp_path / "store", 300)


def test_each_message_lands_once(store: Path, tmp_path: Path) -> None:
    landing = Landing(store, f"delta:{tmp_path / 't'}", store_id="S")
    assert landing.once() == LandingResult(rows=300, dead_letters=0, files=3)
    assert landing.once() == LandingResult(rows=0, dead_letters=0, files=0)
    assert_exactly("delta", tmp_path / "t", keys_of(store, "S"))
    (status,) = landing.status()
    assert (status.rows, status.lag_bytes) == (300, 0)
    (verified,) = landing.verify()
    assert verified.is_clean


def test_it_follows_a_store_until_it_is_stopped(store: Path, tmp_path: Path) -> None:
    stop, passes = Event(), list[Landed]()
    landing = Landing(store, f"parquet:{tmp_path / '{topic}'}", store_id="S")

    def on_landed(landed: Landed) -> None:
        passes.append(landed)
        if sum(each.rows for each in passes) == 300:
            with open_small(store) as owner:
                owner.put(lakelog.Message("topic-0", b"more", queue_id=0))
        elif len(passes) > 1:
            stop.set()

    landing.follow(stop, on_landed, interval_ms=10)
    assert sum(each.rows for each in passes) == 301
    assert len(landing.verify()) == len(landing.status()) > 1


def test_wrong_arguments_make_no_table(store: Path, tmp_path: Path) -> None:
    for wrong in (Landing(store, "csv:t"), Landing(store, "parquet:t", bodies={"a": "variant"})):
        with pytest.raises(SettingsError):
            wrong.once()
    with pytest.raises(SettingsError, match="'all' is not one of position, rows"):
        Landing(store, "parquet:t", resume="all").once()
    with pytest.raises(TypeError, match="resume"):
        Landing(store, "parquet:t", resume=1)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(TypeError, match=r"stop is .*; give a threading.Event"):
        Landing(store, f"parquet:{tmp_path / 't'}").follow(print)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(lakelog_lake, "no" + "thing")
    assert not (tmp_path / "t").exists()


def test_the_snippet_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    filled(tmp_path / "shop", 20)
    (snippet,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    exec(compile(snippet, str(README), "exec"), {})
    assert list((tmp_path / "lake" / "data").glob("*.parquet"))
