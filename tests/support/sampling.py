"""Samples the cases of a long matrix: each run tests other ones, by a seed that the run prints.

The environment variable ``TEST_SEED`` repeats a run. Tests marked slow test all cases.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from typing import Final

SEED: Final = "TEST_SEED"


def seed_of_this_run() -> str:
    """Return the seed; the first process of a run chooses it, and its children inherit it."""
    return os.environ.setdefault(SEED, str(random.SystemRandom().randrange(1_000_000)))


def chance() -> random.Random:
    """Return random numbers for the current test; each test of a run has different ones."""
    return random.Random(f"{seed_of_this_run()} {os.environ['PYTEST_CURRENT_TEST']}")


def every(stride: int, first: int = 0) -> Iterator[int]:
    """Yield every ``stride``-th number, without end; the seed chooses the start near ``first``."""
    return itertools.count(first + chance().randrange(stride), stride)
