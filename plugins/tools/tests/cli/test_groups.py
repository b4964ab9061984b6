"""Topics and consumer groups on the command line: made, consumed, reset, deleted; dead letters."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from lakelog import Message
from lakelog import open as lakelog_open
from lakelog.files.filesystem import RealFileSystem
from lakelog_cli import exitcodes
from lakelog_queues.configs import retry_limits, topics_of
from plugins.tools.tests.cli.conftest import Run
from tests.support.waiting import until


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A store with 20 orders in two queues, tagged by turns."""
    with lakelog_open(tmp_path / "shop") as store:
        store.put_batch(
            [Message("orders", b"%d" % n, tags="AB"[n // 2 % 2], queue_id=n % 2) for n in range(20)]
        )
    return tmp_path / "shop"


def printed(lakelog: Run, *words: object) -> list[dict[str, Any]]:
    done = lakelog(*words, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def codes(lakelog: Run, *commands: tuple[object, ...]) -> set[int]:
    return {lakelog(*words).returncode for words in commands}


def consumed(lakelog: Run, shop: Path, *options: str) -> list[int]:
    rows = printed(lakelog, "consume", shop, "billing", "orders", *options)
    return sorted(int(row["body"]) for row in rows)


def offsets(lakelog: Run, shop: Path) -> dict[int, int]:
    rows = printed(lakelog, "groups", shop, "billing")
    return {row["queue_id"]: row["offset"] for row in rows if row["topic"] == "orders"}


def test_consuming_goes_on_and_can_be_reset(lakelog: Run, shop: Path) -> None:
    first = consumed(lakelog, shop, "-n", "6")
    assert len(first) == 6
    assert sorted(first + consumed(lakelog, shop)) == list(range(20))
    assert consumed(lakelog, shop) == []
    assert offsets(lakelog, shop) == {0: 10, 1: 10}
    assert lakelog("groups", "reset", shop, "billing", "--to", "earliest").returncode == 0
    assert offsets(lakelog, shop) == {0: 0, 1: 0}
    assert consumed(lakelog, shop) == list(range(20))
    time.sleep(0.002)
    now_ms = time.time_ns() // 1_000_000
    lakelog("groups", "reset", shop, "billing", "--to", "earliest", "--topic", "orders")
    assert lakelog("groups", "reset", shop, "billing", "--to", str(now_ms)).returncode == 0
    assert offsets(lakelog, shop) == {0: 10, 1: 10}
    assert lakelog("groups", "delete", shop, "billing").returncode == 0
    assert printed(lakelog, "groups", "list", shop) == []
    found = consumed(lakelog, shop, "--tags", "A")
    assert found == [n for n in range(20) if n // 2 % 2 == 0]


def test_a_reset_to_the_committed_offset_takes_back_what_is_handed_out(
    lakelog: Run, shop: Path
) -> None:
    with lakelog_open(shop) as store:
        store.commit_offsets([("billing", "orders", {0: 0, 1: 0})])
        with store.subscribe("billing", "orders") as member:
            held = member.poll(100)
            assert len(held) == 20
            assert member.poll(100) == []
            assert lakelog("groups", "reset", shop, "billing", "--to", "earliest").returncode == 0
            again = list[int]()

            def is_complete() -> bool:
                again.extend(int(bytes(each.message.body)) for each in member.poll(100))
                return len(again) >= 20

            until(is_complete)
            assert sorted(again) == list(range(20))


def test_entries_that_cannot_be_read_are_findings(lakelog: Run, shop: Path) -> None:
    (shop / "config").mkdir(exist_ok=True)
    (shop / "config" / "consumerOffset.json").write_text(
        '{"offsetTable": {"orders@billing": {"0": 3}, "orders@odd": 7}}'
    )
    assert offsets(lakelog, shop) == {0: 3}
    done = lakelog("doctor", shop, "--json")
    assert done.returncode == exitcodes.FOUND
    (what,) = (each for each in json.loads(done.stdout)["findings"] if "cannot be read" in each)
    assert what.endswith("consumerOffset.json: offsetTable['orders@odd']")


def test_a_new_group_at_the_end_and_a_filter(lakelog: Run, shop: Path) -> None:
    assert consumed(lakelog, shop, "--start", "latest") == []
    assert offsets(lakelog, shop) == {0: 10, 1: 10}
    with lakelog_open(shop) as store:
        store.put_batch([Message("orders", b"%d" % n, properties={"n": str(n)}) for n in (1, 2)])
    assert consumed(lakelog, shop, "--filter", "n = '2'") == [2]
    wrong = lakelog("consume", shop, "billing", "orders", "--filter", "n =")
    assert (wrong.returncode, wrong.stdout) == (exitcodes.USAGE, "")
    assert "character 4" in wrong.stderr


def test_dead_letters(lakelog: Run, shop: Path) -> None:
    listed = lakelog("dlq", "list", shop, "billing")
    assert (listed.returncode, listed.stdout) == (0, "")
    assert "no dead letters" in listed.stderr
    with (
        lakelog_open(shop) as store,
        store.subscribe("billing", "orders", start="earliest", max_attempts=1) as consumer,
    ):
        store.wait_dispatched()
        (letter,) = consumer.poll(1)
        consumer.nack(letter, 0)
        assert consumer.poll(1)[0].message != letter.message
    (row,) = printed(lakelog, "dlq", "list", shop, "billing")
    assert row["properties"]["DLQ_ORIGIN_TOPIC"] == "orders"
    assert lakelog("dlq", "resend", shop, "billing").stdout == "1\n"
    assert lakelog("dlq", "resend", shop, "billing").stdout == "0\n"
    (again,) = printed(lakelog, "tail", shop, "orders", "-n", "1")
    assert again["body"].encode() == letter.message.body
    assert again["properties"] == letter.message.properties
    assert again["reconsume_times"] == 0


def test_a_group_is_created_changed_and_deleted(lakelog: Run, shop: Path) -> None:
    def limits() -> dict[str, int]:
        return retry_limits(RealFileSystem(), shop)

    create, delete = ("groups", "create", shop), ("groups", "delete", shop)
    done = codes(lakelog, (*create, "billing"), (*create, "other", "--max-retries", 0))
    assert (done, limits()) == ({exitcodes.OK}, {"billing": 16, "other": 0})
    assert lakelog(*create, "billing", "--max-retries", 3).returncode == 0
    assert consumed(lakelog, shop)
    assert lakelog(*delete, "billing", "--topic", "orders").returncode == 0
    assert limits() == {"billing": 3, "other": 0}
    assert lakelog(*delete, "billing").returncode == 0
    refused = ((*delete, "billing"), (*create, "a b"), (*create, "c", "--max-retries", -1))
    assert codes(lakelog, *refused) == {exitcodes.USAGE}
    assert limits() == {"other": 0}


def configured(shop: Path) -> dict[str, tuple[int, int, int]]:
    found = topics_of(RealFileSystem(), shop)
    return {
        name: (each.read_queues, each.write_queues, each.permission) for name, each in found.items()
    }


def test_a_topic_is_created_listed_and_deleted(lakelog: Run, shop: Path) -> None:
    assert lakelog("topic", shop).stdout == "orders\t-\t0\t0\t10\norders\t-\t1\t0\t10\n"
    assert lakelog("topic", "create", shop, "new", "--queues", 1).returncode == 0
    assert lakelog("topic", "create", shop, "orders", "--permission", "r").returncode == 0
    assert configured(shop) == {"new": (1, 1, 6), "orders": (2, 2, 4)}
    row = {"topic": "orders", "permission": "r", "min_offset": 0, "max_offset": 10}
    orders = [row | {"queue_id": each} for each in (0, 1)]
    new = row | {"topic": "new", "permission": "rw", "queue_id": 0, "max_offset": 0}
    assert printed(lakelog, "topic", "list", shop) == [new, *orders]
    assert printed(lakelog, "topic", "list", shop, "orders") == orders

    with lakelog_open(shop) as store:
        assert lakelog("topic", "delete", shop, "orders").returncode == 0
        assert store.topics() == []
    assert printed(lakelog, "topic", "list", shop) == [new]
    assert lakelog("topics", shop).stdout == ""
    assert lakelog("topic", "delete", shop, "new").returncode == 0
    assert (printed(lakelog, "topic", "list", shop), configured(shop)) == ([], {})
    with lakelog_open(shop) as store:
        assert store.put(Message("orders", b"6", queue_id=0)).queue_offset == 10
    assert lakelog("topic", shop).stdout == "orders\t-\t0\t10\t11\n"


def test_the_file_of_topics_keeps_what_else_it_has(lakelog: Run, shop: Path) -> None:
    file = shop / "config" / "topics.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text('{"topicConfigTable":{')
    done = lakelog("topic", "create", shop, "new")
    assert done.returncode != exitcodes.OK
    assert "topics.json" in done.stderr
    assert file.read_text() == '{"topicConfigTable":{'
    table = {"orders": {"topicName": "orders", "perm": 7, "order": True, "readQueueNums": 2}}
    file.write_text(json.dumps({"topicConfigTable": table, "more": 1}))
    assert lakelog("topic", "create", shop, "orders", "--queues", 4).returncode == 0
    assert configured(shop) == {"orders": (4, 4, 6)}
    content = json.loads(file.read_text())
    assert (content["more"], content["topicConfigTable"]["orders"]["order"]) == (1, True)
    assert lakelog("topic", "create", shop, "empty").returncode == 0
    assert configured(shop)["empty"] == (8, 8, 6)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("groups", "reset", "shop", "billing", "--to", "latest"), "no group 'billing'"),
        (("groups", "delete", "shop", "billing"), "no group 'billing'"),
        (("consume", "shop", "a b", "orders"), "consumer group's name"),
        (("dlq", "list", "shop", "a b"), "consumer group's name"),
        (("topic", "delete", "shop", "ordes"), "do you mean 'orders'"),
        (("topic", "list", "shop", "xyz"), "no topic 'xyz'"),
        (("topic", "create", "shop", "a b"), "a topic's name"),
        (("topic", "create", "shop", "x" * 128), "1 to 127 characters"),
        (("topic", "create", "shop", "orders", "--queues", "1"), "give 2 or more"),
        (("topic", "create", "shop", "orders", "--permission", "x"), "--permission"),
    ],
    ids=lambda each: None if isinstance(each, str) else f"{each[0]} {each[1]}",
)
def test_wrong_usage(lakelog: Run, shop: Path, arguments: tuple[str, ...], text: str) -> None:
    done = lakelog(*(shop if each == "shop" else each for each in arguments))
    assert done.returncode == exitcodes.USAGE
    assert text in done.stderr
    assert configured(shop) == {}
