"""All distributions, built and installed once for all tests of packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packages.environment import build_pure_wheels, install_wheels
from tests.packages.projects import PROJECTS, ROOT
from tests.support.once import once


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All distributions but the compiled one, built, and installed by pip into a folder."""

    def make(folder: Path) -> None:
        pure = [each.folder for each in PROJECTS if each.name != "lakelog-native"]
        build_pure_wheels(folder / "wheels", *pure, ROOT)
        install_wheels(folder / "wheels", folder / "installed")

    return once("distributions", make, tmp_path_factory) / "installed"
