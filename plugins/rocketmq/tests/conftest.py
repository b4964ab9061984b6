"""`resolve` with a broker.conf, and the settings classes of plugins that exist only in tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from core.tests.settings.samples import SECTIONS
from lakelog.registry import Registry
from lakelog.settings.effective import Settings
from lakelog.settings.resolver import resolve
from lakelog_rocketmq import plugin


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store directory that is not there yet."""
    return tmp_path / "store"


@pytest.fixture
def broker(store: Path, tmp_path: Path) -> Callable[..., Settings]:
    """`resolve` with a broker.conf of these lines."""

    def run(text: str, sections: Mapping[str, type[Any]] = SECTIONS, **given: Any) -> Settings:
        file = tmp_path / "broker.conf"
        file.write_text(text)
        installed = Registry.load([plugin], {}).installed(store)
        return resolve(
            store,
            installed=attrs.evolve(installed, sections=sections),
            arguments=given,
            source=None,
            broker_conf=file,
            environ={},
            cwd=tmp_path,
            tolerate_missing=False,
        )

    return run
