"""A plugin of pytest: ``--some=8`` runs so many of the tests that were collected.

Others in each run, by the seed that the run prints.
"""

from __future__ import annotations

import random

import pytest

from tests.support.sampling import seed_of_this_run


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--some", type=int, help="how many tests to run")


@pytest.hookimpl(trylast=True)  # of those that -m leaves
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    count = config.getoption("some")
    if count is not None and count < len(items):
        chosen = set(random.Random(seed_of_this_run()).sample(range(len(items)), count))
        config.hook.pytest_deselected(
            items=[each for at, each in enumerate(items) if at not in chosen]
        )
        items[:] = [each for at, each in enumerate(items) if at in chosen]
