"""Tests of what is the same for each kind of table run with one kind; with the others it is slow.

What a kind does by itself is tested with each: see ``sink_contract.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TypeVar

import pytest

from plugins.lake.tests.landing.tables import KINDS
from tests.support.sampling import seed_of_this_run

_Test = TypeVar("_Test", bound=Callable[..., object])


def one_of(*kinds: str) -> Callable[[_Test], _Test]:
    """Decorate a test that takes ``kind``; the seed of the run chooses which one is not slow."""

    def decorate(test: _Test) -> _Test:
        chosen = Random(f"{seed_of_this_run()} {test.__qualname__}").choice(kinds)
        others = [each for each in kinds if each != chosen]
        cases = [chosen, *(pytest.param(each, marks=pytest.mark.slow) for each in others)]
        decorated: _Test = pytest.mark.parametrize("kind", cases)(test)
        return decorated

    return decorate


any_kind = one_of(*KINDS)
