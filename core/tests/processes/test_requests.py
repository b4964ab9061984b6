"""Requests to the process with the services, and deaths of clients and of serving processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.tests.processes.dying import EACH, die
from lakelog.files.filesystem import File, RealFileSystem
from lakelog.store import requests
from lakelog.store.requests import SentRequest, asked, is_asked
from tests.support.sampling import every

FILES = RealFileSystem()
WHAT = {"verb": "delete_topic", "words": ["t"]}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path) -> None:
    (tmp_path / "lakelog").mkdir()


def ask(path: Path) -> SentRequest:
    return SentRequest(FILES, path, WHAT)


def answer_all(path: Path, result: Any) -> list[Any]:
    """Answer all requests; return their contents."""
    found = []
    for each in asked(FILES, path):
        found.append(each.what)
        each.answer({"result": result})
    return found


def test_each_gets_its_answer(tmp_path: Path) -> None:
    one, other = ask(tmp_path), SentRequest(FILES, tmp_path, {"verb": "other"})
    assert is_asked(FILES, tmp_path)
    assert (one.answer(), one.takers()) == (None, 0)
    assert sorted(answer_all(tmp_path, "d\udcff"), key=str) == sorted(
        [WHAT, {"verb": "other"}], key=str
    )
    for each in (one, other):
        assert (each.answer(), each.takers()) == ({"result": "d\udcff"}, 1)
        each.close()
    assert not is_asked(FILES, tmp_path)
    assert answer_all(tmp_path, 0) == []


def test_nothing_is_done_for_who_gave_up(tmp_path: Path) -> None:
    request = ask(tmp_path)
    assert not request.give_up()
    assert answer_all(tmp_path, 0) == []
    request.close()
    request = ask(tmp_path)
    for _ in asked(FILES, tmp_path):
        assert request.give_up()
    request.close()
    assert not is_asked(FILES, tmp_path)


def test_one_that_is_taken_for_a_dead_ones_is_made_anew(tmp_path: Path) -> None:
    """Until its file is locked, it does not differ from the file of a dead client."""
    met: list[Any] = []

    class Met(RealFileSystem):
        def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
            file = super().open(path, write=write, create=create)
            if len(met) < 3:
                met.append(answer_all(tmp_path, 0))
            return file

    request = SentRequest(Met(), tmp_path, WHAT)
    assert met == [[], [], []]
    assert answer_all(tmp_path, 1) == [WHAT]
    assert request.answer() == {"result": 1}
    request.close()


@EACH
def test_what_one_asked_for_that_died_at_any_step_is_not_done(tmp_path: Path, stride: int) -> None:
    for step in every(stride):
        lived = not die(step, requests, lambda: ask(tmp_path))
        assert answer_all(tmp_path, 0) == []
        assert not is_asked(FILES, tmp_path)
        if lived:
            break
    assert step > 50


@EACH
def test_where_one_died_at_any_step_of_an_answer_the_next_one_answers(
    tmp_path: Path, stride: int
) -> None:
    for step in every(stride):
        request = ask(tmp_path)
        lived = not die(step, requests, lambda: answer_all(tmp_path, 1))
        first = request.answer()
        assert first in (None, {"result": 1})
        assert answer_all(tmp_path, 2) == ([WHAT] if first is None else [])
        assert request.answer() == (first or {"result": 2})
        assert not is_asked(FILES, tmp_path)
        request.close()
        if lived:
            break
    assert step > 50


def test_a_line_that_was_cut_short_is_no_answer(tmp_path: Path) -> None:
    request = ask(tmp_path)
    [file] = (tmp_path / "lakelog").glob("request.*")
    file.write_bytes(file.read_bytes() + b'{"result": 1')
    assert request.answer() is None
    assert answer_all(tmp_path, 2) == [WHAT]
    assert request.answer() == {"result": 2}
    request.close()
