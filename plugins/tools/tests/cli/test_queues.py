"""Topics, queues and their messages, as the commands list and find them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from lakelog import Message
from lakelog import open as lakelog_open
from plugins.tools.tests.cli.conftest import Run


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A store with 40 orders in two queues, tagged by turns, and one other message."""
    messages = [
        Message("orders", b"%d" % n, tags="even" if n % 4 < 2 else "odd", queue_id=n % 2)
        for n in range(40)
    ]
    with lakelog_open(tmp_path / "shop") as store:
        store.put_batch([*messages, Message("returns", b"r", queue_id=3)])
    return tmp_path / "shop"


def _rows(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def _bodies(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [row["body"] for row in _rows(done)]


def test_topics_and_queues(lakelog: Run, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lakelog("topics", shop).stdout == "orders\t2\t40\nreturns\t1\t1\n"
    assert _rows(lakelog("topics", shop, "--json")) == [
        {"topic": "orders", "queues": 2, "messages": 40},
        {"topic": "returns", "queues": 1, "messages": 1},
    ]
    rows = _rows(lakelog("queues", shop, "--json"))
    found = [(each["topic"], each["queue_id"], each["kind"], each["max_offset"]) for each in rows]
    assert found == [
        ("orders", 0, "SimpleCQ", 20),
        ("orders", 1, "SimpleCQ", 20),
        ("returns", 3, "SimpleCQ", 1),
    ]
    end = _rows(lakelog("scan", shop, "--json"))[-1]
    assert rows[-1]["max_physical_offset"] == end["physical_offset"] + end["size"]
    assert _rows(lakelog("queues", shop, "orders", "--json")) == rows[:2]
    monkeypatch.setenv("FORCE_COLOR", "1")  # every stream counts as a terminal
    lines = re.sub(r"\x1b\[[\d;]*m", "", lakelog("topics", shop).stdout).splitlines()
    assert [line.split() for line in lines] == [
        ["topic", "queues", "messages"],
        ["orders", "2", "40"],
        ["returns", "1", "1"],
    ]


def test_get_and_tail(lakelog: Run, shop: Path) -> None:
    expected: list[tuple[str, Sequence[object], Iterable[int]]] = [
        ("get 0", (), range(0, 40, 2)),
        ("get 0", ("--offset", "earliest", "--max", 2), [0, 2]),
        ("get 0", ("--offset", 18), [36, 38]),
        ("get 0", ("--offset", "latest"), [38]),
        ("get 0", ("--tags", "odd", "--max", 3), [2, 6, 10]),
        ("get 0", ("--tags", "odd || even", "--offset", 17), [34, 36, 38]),
        ("get 0", ("--at", "1h ago", "--max", 1), [0]),
        ("tail", (), range(30, 40)),
        ("tail", ("-n", 3), [37, 38, 39]),
        ("tail", ("-n", 0), []),
        ("tail 1", ("-n", 2), [37, 39]),
        ("tail 0 1", ("-n", 2), [38, 39]),
        ("tail", ("-n", 100), range(40)),
        ("tail", ("-n", 3, "--tags", "odd"), [35, 38, 39]),
        ("tail", ("-n", 15, "--tags", "odd"), [n for n in range(11, 40) if n % 4 > 1]),
    ]
    for words, options, bodies in expected:
        command, *queues = words.split()
        done = lakelog(command, shop, "orders", *queues, "--json", *options)
        assert (_bodies(done), done.stderr) == (list(map(str, bodies)), ""), (words, options)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("get S orders 0 --offset 20", 1, "OFFSET_OVERFLOW_ONE: the queue holds offsets 0 to 19"),
        ("get S orders 0 --offset 21", 1, "OFFSET_OVERFLOW_BADLY"),
        ("get S orders 0 --offset -1", 1, "OFFSET_TOO_SMALL"),
        ("get S orders 0 --tags none", 1, "NO_MATCHED_MESSAGE"),
        ("get S orders 0 --offset x", 2, "--offset"),
        ("get S orders 0 --offset 1 --at now", 2, "--at"),
        ("get S xyz 0", 2, "no topic 'xyz' is here; there is 'orders', 'returns'"),
        ("get S orders 7", 2, "no queue of topic 'orders' '7' is here; there is '0', '1'"),
        ("get S orders -- -1", 2, "queue_id is -1; give 0 or more"),
        ("tail S orders -- -1", 2, "queue_id is -1; give 0 or more"),
        ("tail S -f orders -- -1", 2, "queue_id is -1; give 0 or more"),
        ("tail S orders --tags ||", 2, "tags '||' contain no tag; give tags such as"),
        ("query S orders --key=", 2, "key is empty; give a str such as 'order-42'"),
        ("get S orders 0 --at 1700000000", 2, "looks like seconds; give milli"),
        ("queues S xyz", 2, "no topic 'xyz'"),
        ("tail S orders 9", 2, "'9' is here"),
        ("groups S xyz", 2, "no group 'xyz' is here; there is no group at all"),
        ("query S xyz --key k", 2, "no topic 'xyz'"),
    ],
)
def test_it_is_said_why_there_is_nothing(
    lakelog: Run, shop: Path, words: str, code: int, said: str
) -> None:
    done = lakelog(*(shop if each == "S" else each for each in words.split()))
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr


def test_tail_follows_a_living_owner_until_ctrl_c(shop: Path) -> None:
    words = ["tail", str(shop), "orders", "-f", "-n", "1"]
    command = [sys.executable, "-m", "lakelog_cli.main", *words]
    with (
        lakelog_open(shop) as owner,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process,
    ):
        assert process.stdout
        assert process.stderr
        assert "'39'" in process.stdout.readline()
        owner.put(Message("orders", b"new", queue_id=0))
        assert "'new'" in process.stdout.readline()
        owner.put(Message("orders", b"new queue", queue_id=5))
        assert "'new queue'" in process.stdout.readline()
        time.sleep(0.2)  # it sleeps by now
        process.send_signal(signal.SIGINT)
        assert (process.wait(30), process.stderr.read()) == (130, "")


def test_stats(lakelog: Run, shop: Path) -> None:
    done = lakelog("stats", shop, "--json")
    assert done.returncode == 0, done.stderr
    found, log = json.loads(done.stdout), _rows(lakelog("scan", shop, "--json"))
    assert (found["topics"], found["queues"], found["queued_messages"]) == (2, 3, 41)
    assert (found["segments"], found["segment_size_bytes"]) == (1, 4 << 20)
    assert found["first_store_timestamp_ms"] == log[0]["store_timestamp_ms"]
    assert found["last_store_timestamp_ms"] == log[-1]["store_timestamp_ms"]
    assert found["max_offset"] == log[-1]["physical_offset"] + log[-1]["size"]
    assert (found["is_owned"], found["abort_file_present"]) == (False, False)
    assert found["files"]["commitlog"]["length_bytes"] == 4 << 20
    assert 1 << 20 <= found["files"]["commitlog"]["disk_bytes"] < 2 << 20  # one step of blocks
    assert found["files"]["consumequeue"]["files"] == 3
    lines = lakelog("stats", shop).stdout.splitlines()
    assert "queued_messages = 41" in lines
    assert "files.consumequeue.files = 3" in lines


def test_stats_tell_how_much_is_in_quarantine(lakelog: Run, shop: Path) -> None:
    """The file that lists its content does not count."""
    folder = shop / "lakelog" / "quarantine"
    folder.mkdir()
    (folder / f"{0:020d}-7-0011223344556677.bytes").write_bytes(b"1234567")
    (folder / "consumequeue-0-00000000000000000000-t").write_bytes(b"123")
    (folder / "quarantine.jsonl").write_text('{"file": "x"}\n')
    found = json.loads(lakelog("stats", shop, "--json").stdout)
    assert found["quarantine"] == {"entries": 2, "length_bytes": 10}
    assert found["files"]["quarantine"]["files"] == 3
    assert "quarantine.entries = 2" in lakelog("stats", shop).stdout.splitlines()
    assert lakelog("init", "empty").returncode == 0
    found = json.loads(lakelog("stats", "empty", "--json").stdout)
    assert (found["queues"], found["max_offset"]) == (0, 0)
    assert found["quarantine"] == {"entries": 0, "length_bytes": 0}
    assert found["first_store_timestamp_ms"] is found["last_store_timestamp_ms"] is None


def test_groups(lakelog: Run, shop: Path) -> None:
    (shop / "config").mkdir(exist_ok=True)
    (shop / "config" / "consumerOffset.json").write_text(
        '{"offsetTable":{"orders@g1":{0:5,1:20,9:1},"gone@g1":{0:7},"orders@g2":{0:0}}}'
    )
    rows = _rows(lakelog("groups", shop, "--json"))
    found = [(r["group"], r["topic"], r["queue_id"], r["offset"], r["lag"]) for r in rows]
    assert found == [
        ("g1", "gone", 0, 7, None),
        ("g1", "orders", 0, 5, 15),
        ("g1", "orders", 1, 20, 0),
        ("g1", "orders", 9, 1, None),
        ("g2", "orders", 0, 0, 20),
    ]
    assert lakelog("groups", shop, "g2").stdout == "g2\torders\t0\t0\t0\t20\t20\t0\t-\n"
