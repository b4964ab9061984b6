"""Topics on the command line: created, listed, deleted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lakelog import Message
from lakelog import open as lakelog_open
from lakelog.files.filesystem import RealFileSystem
from lakelog_cli import exitcodes
from lakelog_queues.configs import topics_of
from plugins.tools.tests.cli.conftest import Run


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    with lakelog_open(tmp_path / "shop") as store:
        store.put_batch([Message("orders", b"%d" % n, queue_id=n % 2) for n in range(6)])
    return tmp_path / "shop"


def listed(lakelog: Run, shop: Path, *more: str) -> list[dict[str, Any]]:
    done = lakelog("topic", "list", shop, "--json", *more)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def configured(shop: Path) -> dict[str, tuple[int, int, int]]:
    found = topics_of(RealFileSystem(), shop)
    return {
        name: (each.read_queues, each.write_queues, each.permission) for name, each in found.items()
    }


def test_a_topic_is_created_listed_and_deleted(lakelog: Run, shop: Path) -> None:
    assert lakelog("topic", shop).stdout == "orders\t-\t0\t0\t3\norders\t-\t1\t0\t3\n"
    assert lakelog("topic", "create", shop, "new", "--queues", 1).returncode == 0
    assert lakelog("topic", "create", shop, "orders", "--permission", "r").returncode == 0
    assert configured(shop) == {"new": (1, 1, 6), "orders": (2, 2, 4)}
    row = {"topic": "orders", "permission": "r", "min_offset": 0, "max_offset": 3}
    orders = [row | {"queue_id": each} for each in (0, 1)]
    new = row | {"topic": "new", "permission": "rw", "queue_id": 0, "max_offset": 0}
    assert listed(lakelog, shop) == [new, *orders]
    assert listed(lakelog, shop, "orders") == orders

    assert lakelog("topic", "delete", shop, "orders").returncode == 0
    assert listed(lakelog, shop) == [new]
    assert lakelog("topics", shop).stdout == ""
    assert lakelog("topic", "delete", shop, "new").returncode == 0
    assert (listed(lakelog, shop), configured(shop)) == ([], {})


def test_a_topic_that_is_there_is_changed(lakelog: Run, shop: Path) -> None:
    file = shop / "config" / "topics.json"
    file.parent.mkdir(exist_ok=True)
    table = {"orders": {"topicName": "orders", "perm": 7, "order": True, "readQueueNums": 2}}
    file.write_text(json.dumps({"topicConfigTable": table, "more": 1}))
    assert lakelog("topic", "create", shop, "orders", "--queues", 4).returncode == 0
    assert configured(shop) == {"orders": (4, 4, 6)}
    content = json.loads(file.read_text())
    assert (content["more"], content["topicConfigTable"]["orders"]["order"]) == (1, True)
    assert lakelog("topic", "create", shop, "empty").returncode == 0
    assert configured(shop)["empty"] == (8, 8, 6)


def test_messages_after_a_deletion_make_the_topic_again(lakelog: Run, shop: Path) -> None:
    with lakelog_open(shop) as store:
        assert lakelog("topic", "delete", shop, "orders").returncode == 0
        assert store.topics() == []
        assert store.put(Message("orders", b"6")).queue_offset == 3
    assert lakelog("topic", shop).stdout == "orders\t-\t0\t3\t4\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("delete", "shop", "ordes"), "do you mean 'orders'"),
        (("list", "shop", "xyz"), "no topic 'xyz'"),
        (("create", "shop", "a b"), "a topic's name"),
        (("create", "shop", "x" * 128), "1 to 127 characters"),
        (("create", "shop", "orders", "--queues", "1"), "give 2 or more"),
        (("create", "shop", "orders", "--queues", "0"), "--queues"),
        (("create", "shop", "orders", "--permission", "x"), "--permission"),
    ],
)
def test_wrong_usage(lakelog: Run, shop: Path, arguments: tuple[str, ...], text: str) -> None:
    done = lakelog("topic", *(shop if each == "shop" else each for each in arguments))
    assert done.returncode == exitcodes.USAGE
    assert text in done.stderr
    assert configured(shop) == {}


def test_a_file_that_cannot_be_parsed_stays(lakelog: Run, shop: Path) -> None:
    file = shop / "config" / "topics.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text('{"topicConfigTable":{')
    done = lakelog("topic", "create", shop, "new")
    assert done.returncode != exitcodes.OK
    assert "topics.json" in done.stderr
    assert file.read_text() == '{"topicConfigTable":{'
