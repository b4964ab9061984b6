"""Consumer groups on the command line: consuming, other offsets, dead letters."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from lakelog import Message
from lakelog import open as lakelog_open
from lakelog_cli import exitcodes
from plugins.tools.tests.cli.conftest import Run


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    with lakelog_open(tmp_path / "shop") as store:
        store.put_batch(
            [Message("orders", b"%d" % n, tags="AB"[n // 2 % 2], queue_id=n % 2) for n in range(20)]
        )
    return tmp_path / "shop"


def consumed(lakelog: Run, shop: Path, *options: str) -> list[int]:
    done = lakelog("consume", shop, "billing", "orders", "--json", *options)
    assert done.returncode == 0, done.stderr
    return sorted(int(json.loads(line)["body"]) for line in done.stdout.splitlines())


def offsets(lakelog: Run, shop: Path) -> dict[int, int]:
    lines = lakelog("groups", shop, "billing", "--json").stdout.splitlines()
    rows = map(json.loads, lines)
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
    assert lakelog("groups", "list", shop, "--json").stdout == ""
    found = consumed(lakelog, shop, "--tags", "A")
    assert found == [n for n in range(20) if n // 2 % 2 == 0]


def test_a_new_group_at_the_end(lakelog: Run, shop: Path) -> None:
    assert consumed(lakelog, shop, "--start", "latest") == []
    assert offsets(lakelog, shop) == {0: 10, 1: 10}


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
    (line,) = lakelog("dlq", "list", shop, "billing", "--json").stdout.splitlines()
    assert json.loads(line)["properties"]["DLQ_ORIGIN_TOPIC"] == "orders"
    assert lakelog("dlq", "resend", shop, "billing").stdout == "1\n"
    assert lakelog("dlq", "resend", shop, "billing").stdout == "0\n"
    again = json.loads(lakelog("tail", shop, "orders", "-n", "1", "--json").stdout)
    assert again["body"].encode() == letter.message.body
    assert again["properties"] == letter.message.properties
    assert again["reconsume_times"] == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("groups", "reset", "shop", "billing", "--to", "latest"), "no group 'billing'"),
        (("groups", "delete", "shop", "billing"), "no group 'billing'"),
        (("groups", "reset", "shop", "billing", "--to", "soon"), "soon"),
        (("consume", "shop", "a b", "orders"), "consumer group's name"),
        (("dlq", "list", "shop", "a b"), "consumer group's name"),
    ],
)
def test_wrong_usage(lakelog: Run, shop: Path, arguments: tuple[str, ...], text: str) -> None:
    done = lakelog(*(shop if each == "shop" else each for each in arguments))
    assert done.returncode != exitcodes.OK
    assert text in done.stderr
