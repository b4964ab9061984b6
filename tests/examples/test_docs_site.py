"""The documentation builds as a site, without a warning, and has what is made from the sources."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import lakelog
from lakelog.registry import Registry
from lakelog_cli.schema import schema
from tests.support.once import once

ROOT: Final = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it; a warning is an error there."""

    def build(folder: Path) -> None:
        command = [sys.executable, "-m", "mkdocs", "build", "--config-file", "core/mkdocs.yml"]
        done = subprocess.run(
            [*command, "--site-dir", str(folder)],
            cwd=ROOT,
            env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    return once("site", build, tmp_path_factory)


def text_of(page: Path) -> str:
    """What a reader of a page sees."""
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text()))


def test_every_setting_is_described(site: Path) -> None:
    text = text_of(site / "reference" / "settings.html")
    properties = schema(Registry.load(None, os.environ).sections())["properties"]
    sections = {
        name: each["properties"] for name, each in properties.items() if "properties" in each
    }
    keys = {key for each in sections.values() for key in each}
    keys |= {name for name in properties if sections.get(name, True)}  # some have nothing to set
    assert len(keys) > 80
    assert [key for key in sorted(keys) if key not in text] == []


def test_every_command_is_described(site: Path) -> None:
    text = text_of(site / "reference" / "commands.html")
    named = ["put", "groups reset", "lake verify", "replicate", "broker", "config schema"]
    assert [each for each in named if f"lakelog {each}" not in text] == []


def test_every_public_name_and_error_is_described(site: Path) -> None:
    text = text_of(site / "reference" / "api.html") + text_of(site / "reference" / "errors.html")
    assert [name for name in lakelog.__all__ if name not in text] == []
    assert ":class:" not in text


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|link|img)[^>]+(?:src|href)="(https?://[^"]+)"', page.read_text()
        )
        assert loaded == [], page
