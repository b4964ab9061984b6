"""The shared page: made by one, joined by others, and bad company of all kinds."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from core.tests.shared.dying import at_every, die
from lakelog.errors import SettingsError, StoreError, StoreLocked
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.pages import shared_page as pages
from lakelog.files.pages.shared_page import (
    APPENDED,
    FAILED,
    INTENT_END,
    MAGIC,
    MARKED,
    PAGE_BYTES,
    PROOF,
    SEGMENT_BYTES,
    STATE,
    SYNCS,
    OwnerState,
    SharedPage,
    page_path,
)
from tests.support.sampling import every

FILES = RealFileSystem()
SETTINGS = {"flush": "timed", "plugins": {"mmap": "1.0"}, "record_crc": False}


def make(path: Path, segment_bytes: int = 1 << 20) -> SharedPage:
    (path / "lakelog").mkdir(exist_ok=True)
    page = SharedPage.make(FILES, path)
    page.reset(segment_bytes, SETTINGS)
    return page


def join(path: Path) -> SharedPage:
    return SharedPage.join(FILES, path)


def test_the_next_run_goes_on_in_the_same_page(tmp_path: Path) -> None:
    """A reader of the former run may look at a position now, and has seen the state before."""
    former = make(tmp_path)
    former.words[APPENDED], former.words[PROOF[0]] = 7, 8
    former.words[INTENT_END] = former.words[MARKED] = former.words[SYNCS] = 9
    former.fail("disk")
    made = SharedPage.make(FILES, tmp_path)
    assert former.words[STATE] == OwnerState.OPENING
    assert (former.words[APPENDED], former.words[PROOF[0]]) == (7, 8)
    assert former.failure == "disk"
    made.reset(1 << 21, {})
    assert (former.words[SEGMENT_BYTES], former.settings) == (1 << 21, {})
    assert former.words[APPENDED] == 7
    assert [former.words[at] for at in (INTENT_END, MARKED, SYNCS, FAILED)] == [0, 0, 0, 0]
    assert former.failure is None


@pytest.mark.parametrize("found", [b"", b"\xff" * 100, b"\xff" * PAGE_BYTES, b"\xff" * (1 << 16)])
def test_a_file_that_is_no_page_becomes_one(tmp_path: Path, found: bytes) -> None:
    (tmp_path / "lakelog").mkdir()
    page_path(tmp_path).write_bytes(found)
    words = make(tmp_path).words
    assert (words[0], words[STATE], words[APPENDED]) == (MAGIC, OwnerState.OPENING, 0)
    assert page_path(tmp_path).stat().st_size >= PAGE_BYTES
    assert join(tmp_path).settings == SETTINGS


def test_settings_that_are_nonsense_or_too_long(tmp_path: Path) -> None:
    page, joined = make(tmp_path), join(tmp_path)
    assert joined.settings == SETTINGS
    page.memory[4104:4112] = b"nonsense"
    assert joined.settings == {}
    with pytest.raises(SettingsError, match="settings that all processes share do not fit into"):
        page.reset(1, {"long": "x" * PAGE_BYTES})


def test_the_first_failure_is_told_to_all(tmp_path: Path) -> None:
    one, other = make(tmp_path), join(tmp_path)
    assert other.failure is None
    one.fail("kein Platz \N{EM DASH} " + "x" * PAGE_BYTES)
    other.fail("another")
    assert other.failure is not None
    assert other.failure.startswith("kein Platz \N{EM DASH} xxx")
    assert join(tmp_path).settings == SETTINGS


@pytest.mark.parametrize("length", [None, 0, PAGE_BYTES - 1])
def test_a_page_that_is_gone_or_cut_short(tmp_path: Path, length: int | None) -> None:
    make(tmp_path)
    if length is None:
        page_path(tmp_path).unlink()
    else:
        os.truncate(page_path(tmp_path), length)
    with pytest.raises(StoreError, match=r"lakelog/shared: .* is gone, or was cut short"):
        join(tmp_path)
    make(tmp_path)
    join(tmp_path)


def test_a_page_of_another_version_or_of_nonsense(tmp_path: Path) -> None:
    make(tmp_path).words[0] += 1
    with pytest.raises(StoreError, match=r"another version of lakelog, or .* damaged"):
        join(tmp_path)


def test_a_page_of_another_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(pages, "boot_id", lambda: b"0123456789abcdef")
        make(tmp_path)
    with pytest.raises(StoreLocked, match="a process of another host"):
        join(tmp_path)


@at_every(29)
def test_a_death_at_any_step_leaves_what_the_next_one_can_go_on_with(
    tmp_path: Path, stride: int
) -> None:
    page = make(tmp_path, 1)
    page.words[APPENDED] = 7
    for step in every(stride):
        page.words[STATE], page.words[INTENT_END] = OwnerState.OPEN, 1
        lived = not die(step, pages, partial(make, tmp_path, 2))
        if page.words[INTENT_END] == 0:
            assert page.words[STATE] == OwnerState.OPENING
        assert (page.words[0], page.words[APPENDED]) == (MAGIC, 7)
        if lived:
            break
        page.words[INTENT_END] = 1
        made = make(tmp_path, 3)
        assert (made.words[INTENT_END], made.words[SEGMENT_BYTES]) == (0, 3)
        assert made.settings == SETTINGS
    assert step > 50
    assert page.words[SEGMENT_BYTES] == 2
    assert sorted(each.name for each in (tmp_path / "lakelog").iterdir()) == ["shared"]
