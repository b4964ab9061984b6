"""The shared page: made by one, joined by others, and bad company of all kinds."""

from __future__ import annotations

import itertools
import os
from functools import partial
from pathlib import Path

import pytest

from core.tests.shared.dying import EACH, die
from lakelog.errors import SettingsError, StoreError, StoreLocked
from lakelog.files import RealFileSystem
from lakelog.pages import sharedpage as pages
from lakelog.pages.sharedpage import (
    APPENDED,
    DISPATCHED,
    FAILED,
    GROUP_SYNC_AT,
    MAGIC,
    PAGE_BYTES,
    SEGMENT_BYTES,
    SharedPage,
    page_path,
)
from lakelog.shared import groupsync

FILES = RealFileSystem()
SETTINGS = {"flush": "timed", "plugins": {"mmap": "1.0"}, "record_crc": False}


def make(path: Path, segment_bytes: int = 1 << 20) -> SharedPage:
    (path / "lakelog").mkdir(exist_ok=True)
    return SharedPage.make(FILES, path, segment_bytes, SETTINGS)


def join(path: Path) -> SharedPage:
    return SharedPage.join(FILES, path)


def test_all_see_the_same_words(tmp_path: Path) -> None:
    one = make(tmp_path)
    other = join(tmp_path)
    assert one.identity == other.identity
    assert other.words[SEGMENT_BYTES] == 1 << 20
    one.words[APPENDED] = 1 << 60
    assert other.words[APPENDED] == 1 << 60
    assert (other.words[0], len(other.memory)) == (MAGIC, PAGE_BYTES)
    assert 8 * DISPATCHED >= GROUP_SYNC_AT + groupsync.BYTES
    assert GROUP_SYNC_AT // 8 + groupsync.FAILED == FAILED


def test_a_new_page_takes_the_place_of_the_former(tmp_path: Path) -> None:
    """Who reads the former goes on with what it said, and can see that there is another."""
    former = make(tmp_path)
    former.words[APPENDED] = 7
    made = make(tmp_path)
    assert made.words[APPENDED] == 0
    assert former.words[APPENDED] == 7
    assert made.identity == join(tmp_path).identity != former.identity


def test_settings_that_differ_are_named(tmp_path: Path) -> None:
    page = make(tmp_path)
    joined = join(tmp_path)
    joined.check(SETTINGS, tmp_path)
    with pytest.raises(SettingsError, match=r"flush: .* go by 'timed', and this one by 'inline'"):
        joined.check({**SETTINGS, "flush": "inline"}, tmp_path)
    with pytest.raises(SettingsError, match=r"plugins: .*'mmap': '1.0'.*'mmap': '1.1'"):
        joined.check({**SETTINGS, "plugins": {"mmap": "1.1"}}, tmp_path)
    with pytest.raises(SettingsError, match=r"more: .* go by None, and this one by 1"):
        joined.check({**SETTINGS, "more": 1}, tmp_path)
    page.memory[4104:4112] = b"nonsense"
    assert joined.settings == {}
    with pytest.raises(SettingsError, match="bytes of settings do not fit"):
        SharedPage.make(FILES, tmp_path, 1, {"long": "x" * PAGE_BYTES})


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
        patched.setattr(pages, "_boot_id", lambda: b"0123456789abcdef")
        make(tmp_path)
    with pytest.raises(StoreLocked, match="a process of another host"):
        join(tmp_path)


@EACH
def test_a_death_at_any_step_leaves_the_former_page_or_the_new_one(
    tmp_path: Path, stride: int
) -> None:
    make(tmp_path, 1)
    for step in itertools.count(0, stride):
        lived = not die(step, pages, partial(make, tmp_path, 2))
        found = join(tmp_path)
        assert found.words[SEGMENT_BYTES] in (1, 2)
        assert found.settings == SETTINGS
        if lived:
            assert found.words[SEGMENT_BYTES] == 2
            break
    assert step > 50
    make(tmp_path, 3)
    assert sorted(each.name for each in (tmp_path / "lakelog").iterdir()) == ["shared"]
