"""The retry limit of a group on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakelog import Message
from lakelog import open as lakelog_open
from lakelog.files.filesystem import RealFileSystem
from lakelog_cli import exitcodes
from lakelog_queues.configs import retry_limits
from plugins.tools.tests.cli.conftest import Run


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    with lakelog_open(tmp_path / "shop") as store:
        store.put(Message("orders", b"0"))
    return tmp_path / "shop"


def limits(shop: Path) -> dict[str, int]:
    return retry_limits(RealFileSystem(), shop)


def test_a_group_is_created_changed_and_deleted(lakelog: Run, shop: Path) -> None:
    assert lakelog("groups", "create", shop, "billing").returncode == 0
    assert lakelog("groups", "create", shop, "other", "--max-retries", 0).returncode == 0
    assert limits(shop) == {"billing": 16, "other": 0}
    assert lakelog("groups", "create", shop, "billing", "--max-retries", 3).returncode == 0
    assert lakelog("consume", shop, "billing", "orders").stdout
    topic = ("--topic", "orders")
    assert lakelog("groups", "delete", shop, "billing", *topic).returncode == 0
    assert limits(shop) == {"billing": 3, "other": 0}
    assert lakelog("groups", "delete", shop, "billing").returncode == 0
    assert limits(shop) == {"other": 0}
    assert lakelog("groups", "delete", shop, "billing").returncode == exitcodes.USAGE
    assert lakelog("groups", "create", shop, "a b").returncode == exitcodes.USAGE
    assert lakelog("groups", "create", shop, "c", "--max-retries", -1).returncode == exitcodes.USAGE
    assert limits(shop) == {"other": 0}


def test_consuming_with_a_filter(lakelog: Run, shop: Path) -> None:
    with lakelog_open(shop) as store:
        store.put(Message("orders", b"1", properties={"region": "eu"}))
    run = "consume", shop, "billing", "orders", "--filter"
    (line,) = lakelog(*run, "region = 'eu'", "--json").stdout.splitlines()
    assert json.loads(line)["body"] == "1"
    wrong = lakelog(*run, "region =")
    assert (wrong.returncode, wrong.stdout) == (exitcodes.USAGE, "")
    assert "character 9" in wrong.stderr
