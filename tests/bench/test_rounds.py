"""The bench runs all contenders alike, and continues after one that fails. No time is checked."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tests.bench.model import LAKELOG, CannotRunError, Contender, Contest, Sample
from tests.bench.report import as_json, ratio, table
from tests.bench.rounds import Score, play
from tests.bench.suites import SUITES


def contender(name: str, order: list[str], figure: float = 1.0) -> Contender:
    def run(directory: Path) -> Sample:
        assert not list(directory.iterdir())
        (directory / "file").touch()
        order.append(name)
        return {"rows_s": figure, "mb_s": figure}

    return Contender(name, "", run)


def absent(_directory: Path) -> Sample:
    raise CannotRunError("not installed")


def test_each_round_begins_with_another(tmp_path: Path) -> None:
    order: list[str] = []
    contest = Contest("", [contender(name, order) for name in "abc"])
    play(contest, 3, tmp_path, lambda _: None)
    assert "".join(order) == "abcbcacab"
    assert not list(tmp_path.iterdir())


def test_who_cannot_run_is_reported_and_the_others_run(tmp_path: Path) -> None:
    contest = Contest("", [Contender("a", "", absent), contender("b", [])])
    scores = play(contest, 2, tmp_path, lambda _: None)
    assert [len(score.samples) for score in scores] == [0, 2]
    rows = as_json(SUITES["put"], {"": scores})
    assert [row["not_run"] for row in rows] == ["not installed", None]


@pytest.mark.parametrize(("suite", "expected"), [("put", 2.0), ("import", 0.5)])
def test_above_one_is_faster_than_lakelog(suite: str, expected: float) -> None:
    figures = {"rows_s": 1.0, "import_ms": 1.0}
    ours = Score(Contender(LAKELOG, "", absent), [figures])
    other = Score(Contender("a", "", absent), [dict.fromkeys(figures, 2.0)])
    assert ratio(SUITES[suite], other, [ours, other]) == expected


def test_many_figures_are_printed_below_one_another() -> None:
    suite, printed = SUITES["broker"], StringIO()
    figures = {each.name: 1000.0 + at for at, each in enumerate(suite.columns)}
    scores = [Score(Contender(name, "", absent), [figures]) for name in ("a", "b")]
    table(Console(file=printed, width=110), suite, {"": scores})
    lines = printed.getvalue().splitlines()
    for each in suite.columns:
        (line,) = (line for line in lines if f" {each.heading} " in line)
        assert line.count(format(figures[each.name], each.form)) == 2
