"""Which cases of a long matrix a run tries: others in each run, by a seed that the run prints.

``TEST_SEED`` repeats a run. Tests that are marked slow try all cases.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from typing import Final

SEED: Final = "TEST_SEED"


def seed_of_this_run() -> str:
    """The seed; the first process of a run draws it, and its children inherit it."""
    return os.environ.setdefault(SEED, str(random.SystemRandom().randrange(1_000_000)))


def chance() -> random.Random:
    """Random numbers for the test that runs now: another test of the same run has other ones."""
    return random.Random(f"{seed_of_this_run()} {os.environ['PYTEST_CURRENT_TEST']}")


def every(stride: int, first: int = 0) -> Iterator[int]:
    """Each ``stride``-th number, without end; the seed says which of those from ``first`` on."""
    return itertools.count(first + chance().randrange(stride), stride)
