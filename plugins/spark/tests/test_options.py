"""Options are checked before anything is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelog.errors import SettingsError, UnknownSetting
from lakelog_spark.options import ReadOptions


def test_a_path_is_enough_and_damage_then_fails() -> None:
    assert ReadOptions.of({"path": "/data/store"}) == ReadOptions(Path("/data/store"), False)


def test_a_path_becomes_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert ReadOptions.of({"path": "store"}).path == tmp_path / "store"


def test_a_file_url_is_a_path() -> None:
    assert ReadOptions.of({"path": "file:///data/a%20store"}).path == Path("/data/a store")


def test_damage_can_be_skipped() -> None:
    assert ReadOptions.of({"path": "/s", "corrupt": "skip"}).skip_corrupt


def test_where_to_stop_can_be_chosen() -> None:
    assert ReadOptions.of({"path": "/s"}).until is None
    assert ReadOptions.of({"path": "/s", "until": "readable"}).until == "readable"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "name a store directory"),
        ({"path": ""}, "name a store directory"),
        ({"path": "s3://bucket/store"}, "is no directory: mount it"),
        ({"path": "/s", "corrupt": "ignore"}, "'ignore' is neither fail nor skip"),
        ({"path": "/s", "until": "now"}, "'now' is neither flushed nor readable"),
        ({"paths": '["/a", "/b"]'}, "one load reads one store"),
    ],
)
def test_what_cannot_be_done_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        ReadOptions.of(given)


@pytest.mark.parametrize(
    ("name", "said"),
    [("corupt", "did you mean 'corrupt'"), ("topics", "known are path, corrupt, until")],
)
def test_an_unknown_option_is_refused_with_what_is_known(name: str, said: str) -> None:
    with pytest.raises(UnknownSetting, match=said):
        ReadOptions.of({"path": "/s", name: "x"})
