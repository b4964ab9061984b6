"""For every test: asserts of the contract kits tell values, and no example has a deadline.

How long an example of Hypothesis takes on a busy machine shows nothing.

Functions that belong to no store use the installed accelerator as well, in every test;
``LAKELOG_ACCELERATOR=none`` lets all of them, and every store, do without.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.support import sampling

if TYPE_CHECKING:
    from lakelog_format.accelerate import RecordAccelerator

pytest.register_assert_rewrite("lakelog_testing")  # before any other conftest has imported it
settings.register_profile("unhurried", parent=settings(), deadline=None)
settings.load_profile("unhurried")


def pytest_configure() -> None:
    """Draw the seed of the run, before it starts other processes."""
    sampling.seed_of_this_run()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect no garbage while tests are collected, and never look at these again.

    That takes a fourth of the time; and each ``gc.collect`` of a test would take half a second.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how to repeat the run."""
    terminalreporter.write_line(f"{sampling.SEED}={sampling.seed_of_this_run()}")


@cache
def _installed() -> RecordAccelerator | None:
    if os.environ.get("LAKELOG_ACCELERATOR") == "none":
        return None
    try:
        made: RecordAccelerator = import_module("lakelog_native.accelerator").Native()
    except ModuleNotFoundError:
        return None
    return made


@pytest.fixture(autouse=True)
def _accelerator() -> Iterator[None]:
    """Each test begins with it; a store that a test opens may change what the process uses."""
    from lakelog_format import accelerate

    accelerate.use(_installed())
    yield
    accelerate.use(None)
