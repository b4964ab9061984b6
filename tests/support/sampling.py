"""Samples what would take too long: each commit tests other cases, by a seed that the run prints.

The environment variable ``TEST_SEED`` sets another seed. Tests marked slow test all cases. Of a
matrix of parameters, the mark ``sample(n)`` leaves ``n`` cases (``conftest.py``). Of the steps that
one test goes through, it goes to each ``stride``-th one: see :func:`at_every`.
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

SEED: Final = "TEST_SEED"
_HERE: Final = Path(__file__).parent


def seed_of_this_run() -> str:
    """Return the seed: of the environment, else the commit; the processes of a run inherit it."""
    if SEED not in os.environ:
        command = ["git", "rev-parse", "--short=12", "HEAD"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=_HERE)
        os.environ[SEED] = done.stdout.strip() or str(random.SystemRandom().randrange(1_000_000))
    return os.environ[SEED]


def chance() -> random.Random:
    """Return random numbers for the current test; each test of a run has different ones."""
    return random.Random(f"{seed_of_this_run()} {os.environ['PYTEST_CURRENT_TEST']}")


def at_every(stride: int) -> pytest.MarkDecorator:
    """Parametrise a test by its ``stride``: the given one, and 1 in the slow tests."""
    return pytest.mark.parametrize("stride", [stride, pytest.param(1, marks=pytest.mark.slow)])


def below(end: int, stride: int) -> range:
    """Return every ``stride``-th number below ``end``; the seed chooses the first one."""
    return range(chance().randrange(stride), end, stride)


def every(stride: int, first: int = 0) -> Iterator[int]:
    """Yield every ``stride``-th number, without end; the seed chooses the start near ``first``."""
    return itertools.count(first + chance().randrange(stride), stride)
