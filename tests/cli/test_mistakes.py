"""Plausible mistakes, on the command line and in programs: each gets a message that helps.

A message says what is wrong, where, and what to do; no mistake changes the store.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
from lakelog import Message
from tests.support.commands import invoke

SMALL: Final[dict[str, Any]] = {
    "segment_size_bytes": 65536,
    "hash_index": {"slots": 100, "entries": 400},
}

SEGMENT: Final = "shop/commitlog/00000000000000000000"

COMMANDS: Final = [
    # the store
    ("scan shopp", 3, ["shopp", "no store is here; is the path right?"]),
    ("scan .", 3, ["no commitlog/", "give an empty directory, or one that RocketMQ"]),
    ("scan shop/commitlog", 3, ["shop/commitlog", "no commitlog/"]),
    ("top shop", 3, ["nobody has this store open"]),
    ("promote shop", 3, ["it is no replica"]),
    ("put shop orders x --set segment_size_bytes=1MiB", 3, ["65536", "correct the setting"]),
    # names
    ("putt shop orders x", 2, ["No such command 'putt'", "Did you mean 'put'?"]),
    ("get shop order 0", 2, ["no topic 'order' is here; do you mean 'orders'?"]),
    ("get shop orders 9", 2, ["'9'", "there is '0', '1'"]),
    ("tail shop nothing", 2, ["no topic 'nothing' is here; there is 'orders'"]),
    ("groups reset shop nobody --to earliest", 2, ["no group 'nobody'", "no group at all"]),
    ("query shop orders --key nothing", 1, ["no message has the key 'nothing'"]),
    ("grep nothing shop", 1, ["no message matches"]),
    # settings
    ("put shop orders x --set segment_size=1", 2, ["no such setting", "segment_size_bytes"]),
    ("put shop orders x --set flush=fast", 2, ["'fast'", "group-commit, inline, none, timed"]),
    ("put shop orders x --set flush", 2, ["--set flush is not KEY=VALUE"]),
    ("put new orders x --set segment_size_bytes=big", 2, ["'big' is not a whole number of bytes"]),
    ("put shop orders x --set timed.flush_interval_ms=-1", 2, ["flush_interval_ms"]),
    (
        "put shop orders x --set group-commit.sync_flush_timeout_ms=100000000000000",
        2,
        ["group-commit.sync_flush_timeout_ms", "too long", "at most 100 years, 3153600000000 ms"],
    ),
    (
        "put shop orders x --set rocketmq-ha.silence_timeout_ms=30d",
        2,
        ["rocketmq-ha.silence_timeout_ms", "<= 2147483647", "2592000000"],
    ),
    ("config show shop --settings no.toml", 2, ["no.toml", "check the name"]),
    ("clean shop", 2, ["no cleaner is set", "such as 'retention'"]),
    # values
    ("put shop", 2, ["Missing argument 'TOPIC'"]),
    ("put shop orders --jsonl no.jsonl", 2, ["no.jsonl: cannot be read"]),
    ("query shop orders --key k --since soon", 2, ["'soon' is no time", "10m ago"]),
    ("query shop orders --key k --since now --until yesterday", 2, ["is later than --until"]),
    ("groups reset shop billing --to somewhere", 2, ["'somewhere' is no time"]),
    ("topic create shop more --queues 0", 2, ["--queues", "0 is not in the range x>=1"]),
    ("grep -e ( shop", 2, ["'(' is no regular expression"]),
    ("report shop -o missing/page.html", 5, ["missing/page.html cannot be written"]),
    ("report shop -o shop/checkpoint", 5, ["it is in the store", "name a file elsewhere"]),
    (f"verify shop --html {SEGMENT}", 5, [SEGMENT, "it is in the store", "name a file elsewhere"]),
    ("stats shop --json yes", 2, ["unexpected extra argument", "yes", "stats --help"]),
    ("stats shop --jsn", 2, ["No such option: --jsn", "--json"]),
    ("man shop/commitlog/00000000000000000000/man1", 5, ["man1 cannot be made"]),
    ("completion tcsh", 2, ["'bash', 'zsh', 'fish'"]),
    # a plugin of one's own
    ("plugins new Acme --kind cleaner", 2, ["'Acme'", "lower-case words", "such as acme-pace"]),
    ("plugins new acme-pace", 2, ["give --kind KIND; one of", "disk-watcher"]),
    ("plugins new acme-pace shop/lock/a --kind cleaner", 5, ["cannot be made: Not a directory"]),
    # tables, copies, brokers
    ("dispatch shop --to lake --engine processes", 2, ["'lake' is not KIND:PATH", "iceberg"]),
    ("dispatch shop --to icebrg:lake --engine processes", 2, ["is not KIND:PATH", "iceberg"]),
    ("dispatch shop --to iceberg:lake --engine flink", 2, ["'auto', 'processes', 'spark'"]),
    ("lake verify shop --to iceberg:nolake", 2, ["no folder", "nolake", "--table"]),
    ("sql shop 'select * from message' --engine duckdb", 2, ['Did you mean "messages"?']),
    ("replicate copy --from nohost", 2, ["'nohost' is no address; give HOST:PORT"]),
    ("broker shop --port 99999", 2, ["--port", "0<=x<=65535"]),
    ("broker shop --host 0.0.0.0", 2, ["would serve everybody", "users file"]),
    ("broker shop --set broker.port=abc", 2, ["broker.port", "expected a whole number, got 'abc'"]),
    ("broker shop --set broker.tls=on", 2, ["broker.tls", "off, permissive, required", "'on'"]),
    ("broker shop --set broker=1", 2, ["'broker' is a section", "give it a table, [broker]"]),
    ("serve shop --service lake=nosuchprogram", 2, ["no program 'nosuchprogram' is here"]),
]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a closed store with two messages, which no mistake changes."""
    path = tmp_path_factory.mktemp("mistakes") / "shop"
    with lakelog.open(path, **SMALL) as opened:
        opened.put_batch([Message("orders", b"a", queue_id=0), Message("orders", b"b", queue_id=1)])
    return path


@pytest.fixture
def store(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(shop.parent)
    monkeypatch.setenv("COLUMNS", "200")
    return shop


def _log(store: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in (store / "commitlog").iterdir()}


@pytest.mark.parametrize(("line", "code", "fragments"), COMMANDS, ids=[row[0] for row in COMMANDS])
def test_a_command(store: Path, line: str, code: int, fragments: list[str]) -> None:
    before = _log(store)
    done = invoke(*shlex.split(line))
    said = " ".join(done.output.replace("│", " ").split())
    assert done.exit_code == code, said
    assert [each for each in fragments if each not in said] == [], said
    assert "Traceback" not in said
    assert _log(store) == before


def _open(**arguments: Any) -> Callable[[Path], object]:
    return lambda store: lakelog.open(store, **arguments)


def _put(*arguments: Any, **named: Any) -> Callable[[Path], object]:
    def mistake(store: Path) -> None:
        with lakelog.open(store, **SMALL) as opened:
            opened.put(Message(*arguments, **named))

    return mistake


def _read_after_close(store: Path) -> None:
    opened = lakelog.open(store, mode="read")
    opened.close()
    list(opened.scan())


def _put_into_a_reader(store: Path) -> None:
    with lakelog.open(store, mode="read") as opened:
        opened.put(Message("orders", b"x"))


def _get_behind_the_log(store: Path) -> None:
    with lakelog.open(store, mode="read") as opened:
        opened.look_up(1 << 40)


PROGRAMS: Final = [
    ("a misspelt setting", _open(segmnt_size_bytes=1), ["segmnt_size_bytes", "segment_size_bytes"]),
    ("a wrong mode", _open(mode="rw"), ["'rw'", "write"]),
    ("a wrong plugin", _open(plugins=[object()]), ["plugin"]),
    ("a wrong type", _open(**{**SMALL, "segment_size_bytes": 1.5}), ["segment_size_bytes", "1.5"]),
    ("a text as body", _put("orders", "text"), ["body", "bytes"]),
    ("no topic", _put("", b"x"), ["topic"]),
    ("two keys in a text", _put("orders", b"x", keys="a b"), ["no space", "give a list"]),
    ("a long body", _put("orders", b"x" * 70000), ["70097 bytes", "the limit is 65528"]),
    ("a long topic", _put("t" * 300, b"x"), ["255"]),
    (
        "a wrong property",
        _put("orders", b"x", properties={"a": 1}),
        ["property 'a' is 1 (int); give a str"],
    ),
    ("a closed store", _read_after_close, ["closed"]),
    ("a put into a reader", _put_into_a_reader, ["reading"]),
    ("an offset behind the end", _get_behind_the_log, [str(1 << 40)]),
]


@pytest.mark.parametrize(
    ("mistake", "fragments"), [row[1:] for row in PROGRAMS], ids=[row[0] for row in PROGRAMS]
)
def test_a_program(store: Path, mistake: Callable[[Path], object], fragments: list[str]) -> None:
    before = _log(store)
    with pytest.raises((lakelog.LakelogError, TypeError, ValueError)) as raised:
        mistake(store)
    said = str(raised.value)
    assert [each for each in fragments if each not in said] == [], said
    assert _log(store) == before


def test_there_are_sixty_of_them() -> None:
    assert len(COMMANDS) + len(PROGRAMS) >= 60
