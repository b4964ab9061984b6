"""A result that several processes need is built once, and is complete when it has its name."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.support.maven import once

if TYPE_CHECKING:
    from pathlib import Path


def test_made_once_whoever_asks(tmp_path: Path) -> None:
    made: list[Path] = []
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: once(tmp_path / "it", made.append), range(8)))
    assert len(made) == 1
    assert set(folders) == {tmp_path / "it"}


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        once(tmp_path / "it", fail)
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
