"""The files of contrib/deploy use commands and options that exist."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from pathlib import Path
from typing import Any, Final

import pytest
import typer.main
import yaml

from lakelog_cli.commands.man import Command, commands
from tests.support.commands import app

DEPLOY: Final = Path(__file__).parents[2] / "contrib" / "deploy"
UNITS: Final = sorted(each.name for each in DEPLOY.glob("*.service"))


@pytest.fixture(scope="module")
def known() -> dict[str, Command]:
    """All commands by their first word."""
    return {each.path: each for each in commands(typer.main.get_command(app()))}


def _check(words: list[str], known: dict[str, Command]) -> None:
    command = known[words[0]]
    options = {name for each in command.parameters for name in each.names.split(", ")}
    assert [each for each in words if each.startswith("--") and each not in options] == []


@pytest.mark.parametrize("name", UNITS)
def test_a_unit(name: str, known: dict[str, Command]) -> None:
    unit = configparser.RawConfigParser(strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # names have capitals
    unit.read(DEPLOY / name)
    assert {"Unit", "Service", "Install"} == set(unit.sections())
    line = unit["Service"]["ExecStart"]
    words = shlex.split(line.partition("/opt/lakelog/bin/lakelog")[2].strip("'"))
    _check(words, known)


def test_the_image(known: dict[str, Command]) -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    command = re.search(r"^CMD (.*)$", text, re.MULTILINE)
    assert command is not None
    _check(json.loads(command[1]), known)


def test_the_services(known: dict[str, Command]) -> None:
    services: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert set(services) == {"broker", "metrics"}
    for service in services.values():
        _check(service["command"], known)
        assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
