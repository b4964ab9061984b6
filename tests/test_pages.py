"""Modules and files that the pages name exist, and names to which docstrings refer."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
SPAN: Final = re.compile(r"`([^`\n]+)`")
DOTTED: Final = re.compile(r"lakelog(_\w+)?(\.[a-zA-Z_]\w*)+")
REFERENCE: Final = re.compile(r":\w+:`~?(lakelog[\w.]+)`")
FILE: Final = re.compile(r"(?:[\w.]+/)*\w+\.(?:py|rs)")
NO_MODULES: Final = ("service", "toml", "socket", "conf", "json")
"""Endings of files whose names begin with ``lakelog``."""
NOT_OF_MODULES: Final = {
    "lakelog_lake.engines",
    "lakelog_lake.formats",
    "lakelog_lake.observers",
    "lakelog.history",
    "lakelog_store.store",
}
"""Groups of entry points, a property of tables, and an attribute of a fixture."""
GIT: Final = ["git", "-C", str(ROOT), "ls-files"]
FILES: Final = subprocess.run(GIT, capture_output=True, text=True, check=True).stdout.split()
SOURCES: Final = [each for each in FILES if each.endswith(".py") and "/src/" in each]
PAGES: Final = [each for each in FILES if each.endswith(".md") and each != "CHANGELOG.md"]


def is_named(dotted: str) -> bool:
    """Whether a module, or an attribute of one, has this name."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:length]))
        except ModuleNotFoundError as error:
            if error.name is None or not dotted.startswith(error.name):
                pytest.skip(f"{error.name} is not installed")
            continue
        for name in parts[length:]:
            found = getattr(found, name, None)  # type: ignore[assignment]  # any attribute
        return found is not None
    return False


def is_there(file: str, page: str) -> bool:
    """Whether a file of the project has this path, or ends in it."""
    beside = str((ROOT / page).parent.relative_to(ROOT) / Path(file))
    return beside in FILES or any(
        f"/{each}".endswith((f"/{file}", f"/{file}.in")) for each in FILES
    )


def wrong(page: str) -> Iterator[str]:
    for span in SPAN.findall((ROOT / page).read_text()):
        if DOTTED.fullmatch(span) and span.rpartition(".")[2] not in NO_MODULES:
            if span not in NOT_OF_MODULES and not is_named(span):
                yield span
        elif FILE.fullmatch(span) and not is_there(span, page):
            yield span


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_exists(page: str) -> None:
    assert list(wrong(page)) == []


def test_names_to_which_docstrings_refer_exist() -> None:
    found = {
        (source, name)
        for source in SOURCES
        for name in REFERENCE.findall((ROOT / source).read_text())
    }
    assert sorted((source, name) for source, name in found if not is_named(name)) == []
