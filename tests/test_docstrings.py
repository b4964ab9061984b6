"""The examples in docstrings give the results that stand below them."""

from __future__ import annotations

import doctest
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

from tests.support.required import missing

ROOT: Final = Path(__file__).parents[1]
EXAMPLE: Final = re.compile(r"^ *>>> ", re.MULTILINE)


def modules() -> Iterator[tuple[str, int]]:
    """The import name of each module with examples, and their number."""
    for source in [ROOT / "core" / "src", *ROOT.glob("plugins/*/src"), *ROOT.glob("contrib/*/src")]:
        for path in sorted(source.rglob("*.py")):
            count = len(EXAMPLE.findall(path.read_text()))
            if count:
                parts = path.relative_to(source).with_suffix("").parts
                yield ".".join(each for each in parts if each != "__init__"), count


@pytest.mark.parametrize(("name", "count"), list(modules()))
def test_examples_give_what_they_say(name: str, count: int) -> None:
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        missing(f"{error.name} is not installed")
    found = doctest.DocTestFinder().find(module)
    assert sum(len(each.examples) for each in found) == count, "one is no docstring's"
    assert not any(doctest.SKIP in run.options for each in found for run in each.examples)
    said: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    for each in found:
        runner.run(each, out=said.append)
    assert not said, "".join(said)
