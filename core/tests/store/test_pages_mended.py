"""A positions page that somebody else changed is as it should be again with the next heartbeat."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.tests.services.support import eventually, open_away, pid_of
from core.tests.store.support import fill, open_small, read_small
from lakelog import Store
from lakelog.files import RealFileSystem
from lakelog.pages import publishing
from lakelog.pages.pageview import PageView
from lakelog.pages.sharedpage import HEARTBEAT, PAGE_BYTES, RECORDS, WORDS, State, page_path

FILES = RealFileSystem()
COUNTS = range(RECORDS - 2, RECORDS + 1)


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "HEARTBEAT_MS", 50)


def words(path: Path) -> list[int]:
    """What the page says, but for what only counts, and the time; nothing if it is gone.

    One that is being made has no length yet, and then counts for nothing, as with any reader.
    """
    page = page_path(path)
    content = memoryview(page.read_bytes() if page.exists() else b"")
    if len(content) < PAGE_BYTES:
        return []
    words = content.cast("Q")
    return [0 if at == HEARTBEAT or at in COUNTS else words[at] for at in range(WORDS)]


def spoil(path: Path, content: bytes) -> None:
    with page_path(path).open("r+b") as file:
        file.write(content)


@pytest.mark.parametrize("content", [bytes(PAGE_BYTES), b"\x7f" * 21 * 8], ids=["zeros", "ones"])
@pytest.mark.parametrize("away", [False, True], ids=["thread", "process"])
def test_words_that_are_wrong(tmp_path: Path, away: bool, content: bytes) -> None:
    opened = open_away if away else open_small
    with opened(tmp_path, flush="inline") as store, read_small(tmp_path) as reader:
        goes_on(store, reader, 0)
        if away:
            pid_of(store)
            eventually(lambda: dispatcher(tmp_path) == pid_of(store))
        before = words(tmp_path)
        spoil(tmp_path, content)
        eventually(lambda: words(tmp_path) == before)
        goes_on(store, reader, 5)


@pytest.mark.parametrize("away", [False, True], ids=["thread", "process"])
def test_a_page_that_is_gone(tmp_path: Path, away: bool) -> None:
    opened = open_away if away else open_small
    with opened(tmp_path) as store, read_small(tmp_path) as reader:
        goes_on(store, reader, 0)
        before = words(tmp_path)
        page_path(tmp_path).unlink()
        eventually(lambda: words(tmp_path)[:7] == before[:7])
        goes_on(store, reader, 5)
        with read_small(tmp_path) as fresh:
            assert len(fresh.get("t", 0, 0, 99).messages) == 10
    page = PageView.open(FILES, tmp_path)
    assert page is not None
    assert page.state is State.CLOSED


def dispatcher(path: Path) -> int:
    page = PageView.open(FILES, path)
    return 0 if page is None else page.dispatcher[0]


def goes_on(store: Store, reader: Store, before: int) -> None:
    fill(store, 5)
    assert store.wait_dispatched()
    assert store.dispatched_offset == store.max_offset
    eventually(lambda: len(reader.get("t", 0, before, 99).messages) == 5)
