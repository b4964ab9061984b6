"""For every test: asserts of the contract kits show values, and no example has a deadline.

The time that an example of Hypothesis takes on a busy machine shows nothing. Half of its usual
number of examples are enough, as each run has other ones.

Tests use the installed accelerator, also in functions that belong to no store. Tests marked
``both_ways`` run once with it and once in plain Python, also in the processes that they start.
``LAKELOG_ACCELERATOR=none`` runs all tests in plain Python.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import settings

from tests.support import sampling

if TYPE_CHECKING:
    from lakelog.accelerate import Accelerator

_VARIABLE: Final = "LAKELOG_ACCELERATOR"
pytest.register_assert_rewrite("lakelog_testing")  # before any other conftest has imported it
settings.register_profile("unhurried", parent=settings(), deadline=None, max_examples=50)
settings.load_profile("unhurried")


def pytest_configure() -> None:
    """Draw the seed of the run, before it starts other processes; let Ctrl-C end these.

    A shell starts what is in its background with SIGINT ignored, which all children inherit.
    """
    sampling.seed_of_this_run()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """``make test`` keeps temporary files in memory; tests marked ``disk`` have a real disk."""
    if request.node.get_closest_marker("disk") is None:
        yield tmp_path
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder).resolve()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the cases of a matrix ``slow``, but as many as its marker ``sample`` says.

    Functions with the same parameters keep the same cases, so that these share their fixtures. A
    case that the command line names is kept.
    """
    matrices: dict[tuple[str, int], list[pytest.Item]] = {}
    for item in items:
        if (marker := item.get_closest_marker("sample")) is not None:
            matrices.setdefault((item.nodeid.partition("[")[0], *marker.args), []).append(item)
    for (name, count), cases in matrices.items():
        cases_of = [each.nodeid.removeprefix(name) for each in cases]
        chance = random.Random(f"{sampling.seed_of_this_run()} {cases_of}")
        for item in chance.sample(cases, max(len(cases) - count, 0)):
            if item.nodeid not in config.args:
                item.add_marker("slow")


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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests that are marked ``both_ways`` with compiled code and without."""
    if metafunc.definition.get_closest_marker("both_ways") and _installed():
        metafunc.parametrize("_accelerator", ["native", "plain"], indirect=True)


@cache
def _installed() -> Accelerator | None:
    if os.environ.get(_VARIABLE) == "none":
        return None
    try:
        made: Accelerator = import_module("lakelog_native.accelerator").Native()
    except ModuleNotFoundError:
        return None
    return made


@pytest.fixture(autouse=True)
def _accelerator(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test begins with it; a store that a test opens may change what the process uses."""
    from lakelog import accelerate

    with pytest.MonkeyPatch.context() as patch:
        if getattr(request, "param", "native") == "plain":
            patch.setenv(_VARIABLE, "none")
            accelerate.use(None)
        else:
            accelerate.use(_installed())
        yield
    accelerate.use(None)
