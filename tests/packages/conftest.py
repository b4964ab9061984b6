"""All distributions, built and installed once for all tests of packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packages.environment import build_wheels, install_wheels
from tests.support.once import once

ROOT = Path(__file__).parents[2]
OURS = [
    *("core", "plugins/daemon", "plugins/direct", "plugins/flush", "plugins/hash_index"),
    *(
        "plugins/mmap",
        "plugins/lake",
        "plugins/replication",
        "plugins/retention",
        "plugins/rocketmq",
        "plugins/queues",
        "plugins/spark",
    ),
    *("plugins/testing", "plugins/tools", "."),
]


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All distributions that ``lakelog`` can bring, built, and installed by pip into a folder."""

    def make(folder: Path) -> None:
        build_wheels(folder / "wheels", *(ROOT / each for each in OURS))
        install_wheels(folder / "wheels", folder / "installed")

    return once("distributions", make, tmp_path_factory) / "installed"
