"""The wheels of all distributions, built once for all tests of packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packages.environment import build_wheels

ROOT = Path(__file__).parents[2]
OURS = [
    *("core", "plugins/daemon", "plugins/direct", "plugins/flush", "plugins/hash_index"),
    *(
        "plugins/mmap",
        "plugins/lake",
        "plugins/retention",
        "plugins/rocketmq",
        "plugins/queues",
        "plugins/spark",
    ),
    *("plugins/testing", "plugins/tools", "."),
]


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All distributions that ``lakelog`` can bring, built."""
    folder = tmp_path_factory.mktemp("wheels")
    build_wheels(folder, *(ROOT / each for each in OURS))
    return folder
