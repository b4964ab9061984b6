"""Runs contests in rounds: each round runs every contender once, in rotating order."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.model import CannotRunError, Column, Contender, Contest, Sample


@dataclass
class Score:
    """The results of one contender, round by round, or the reason why it did not run."""

    contender: Contender
    samples: list[Sample] = field(default_factory=list)
    reason: str = ""

    def values(self, column: str) -> list[float]:
        """One figure, round by round."""
        return [sample[column] for sample in self.samples]

    def has(self, column: str) -> bool:
        """Whether there is such a figure of this contender."""
        return bool(self.samples) and column in self.samples[0]

    def text(self, column: Column) -> str:
        """The figure to report, in the column's format; empty without one."""
        return format(self.median(column.name), column.form) if self.has(column.name) else ""

    def median(self, column: str) -> float:
        """The figure to report."""
        return statistics.median(self.values(column))


def play(
    contest: Contest, rounds: int, scratch: Path, progress: Callable[[str], None]
) -> Sequence[Score]:
    """Run all rounds of a contest; a contender that cannot run is left out of later rounds."""
    scores = [Score(contender) for contender in contest.contenders]
    for number in range(rounds):
        first = number % len(scores)
        for score in scores[first:] + scores[:first]:
            if not score.reason:
                progress(f"{contest.title}, round {number + 1}: {score.contender.name}")
                _run(score, scratch)
    return scores


def _run(score: Score, scratch: Path) -> None:
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        try:
            score.samples.append(score.contender.run(Path(directory)))
        except CannotRunError as reason:
            score.reason = str(reason)
