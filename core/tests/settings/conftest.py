"""`resolve` with everything left out that a test does not give."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import lakelog_rocketmq.plugin
from core.tests.registry.samples import search
from core.tests.settings.samples import SECTIONS, Resolve
from lakelog.registry import Registry
from lakelog.settings.effective import Settings
from lakelog.settings.resolver import resolve


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def resolved(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Resolve:
    """`resolve` of the store, with nothing given but what a test gives.

    Nothing is installed but ``plugins``, and of their strategies only ``sections`` are known.
    """

    def run(
        sections: Mapping[str, type[Any]] = SECTIONS,
        plugins: Sequence[object] = (lakelog_rocketmq.plugin,),
        **given: Any,
    ) -> Settings:
        search(monkeypatch)
        installed = Registry.load(plugins, {}).installed(store)
        nothing: dict[str, Any] = {
            "installed": installed._replace(sections=sections),
            "arguments": {},
            "source": None,
            "broker_conf": None,
            "environ": {},
            "cwd": tmp_path,
            "tolerate_missing": False,
        }
        return resolve(store, **nothing | given)

    return run


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    def run(name: str, text: str) -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    return run
