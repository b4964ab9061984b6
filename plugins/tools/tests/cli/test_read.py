"""Reading commands print the requested data, report faults on stderr, and change nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog import Message
from lakelog.store.open import open_store
from lakelog_cli.output import shown
from plugins.tools.tests.cli.conftest import ENVIRON, Run, spoil_second


def _state(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    return {
        str(path): (
            path.read_bytes() if path.is_file() else b"",
            path.stat().st_mtime_ns,
            path.stat().st_mode,
        )
        for path in [folder, *sorted(folder.rglob("*"))]
    }


READING = [
    ["scan", "{}"],
    ["scan", "{}", "--json"],
    ["dump", "--records", "{}"],
    ["dump", "{}"],
    ["get", "{}", "orders", "1"],
    ["tail", "{}", "orders"],
    ["topics", "{}"],
    ["queues", "{}"],
    ["groups", "{}"],
    ["stats", "{}"],
    ["verify", "{}"],
    ["config", "show", "{}"],
    ["plugins", "--store", "{}"],
    ["init", "{}"],
]


def test_a_read_only_directory_stays_as_it_is(lakelog: Run, store: Path) -> None:
    folders = [store, *(path for path in store.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    before = _state(store)
    try:
        for args in READING:
            done = lakelog(*(arg.format(store) for arg in args))
            assert done.returncode == 0, done.stderr
            assert _state(store) == before, args
    finally:
        for folder in folders:
            folder.chmod(0o755)


OWN: Final = """
import sys, lakelog
with lakelog.open(sys.argv[1], segment_size_bytes="64KiB") as owner:
    owner.put(lakelog.Message("orders", b"living", queue_id=1))
    print("owns", flush=True)
    for line in sys.stdin:
        owner.put(lakelog.Message("orders", b"later"))
        print(owner.role, flush=True)
"""


def test_reading_beside_a_living_owner(
    lakelog: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    monkeypatch.delenv("LAKELOG_SEGMENT_SIZE_BYTES")
    with subprocess.Popen(
        [sys.executable, "-c", OWN, str(path)],
        env=os.environ | ENVIRON,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == "owns\n"
        for args in READING:
            done = lakelog(*(arg.format(path) for arg in args))
            assert (done.returncode, done.stderr) == (0, ""), args
            assert "living" in done.stdout or args[0] not in ("get", "scan", "tail")
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "owner\n"
        process.stdin.close()
    assert process.returncode == 0


def test_scan_takes_a_part(lakelog: Run, store: Path) -> None:
    rows = list(map(json.loads, lakelog("scan", store, "--json").stdout.splitlines()))
    assert [row["body"] for row in rows] == ["a", "b", "c"]
    second, third = rows[1]["physical_offset"], rows[2]["physical_offset"]
    part = lakelog("scan", store, "--start", second, "--end", third).stdout
    assert part == f"{second} orders/1@1 'b'\n"
    assert len(lakelog("scan", store, "--limit", 2).stdout.splitlines()) == 2


def test_dump_prints_everything(lakelog: Run, store: Path) -> None:
    done = lakelog("dump", store)
    assert (done.returncode, done.stderr) == (0, "")
    rows = list(map(json.loads, done.stdout.splitlines()))
    assert [row["kind"] for row in rows] == ["store", "queue", *["msg"] * 3, *["rec"] * 3]
    assert rows[5:] == list(
        map(json.loads, lakelog("dump", "--records", store).stdout.splitlines())
    )
    assert [row["cqOffset"] for row in rows[2:5]] == [0, 1, 2]


def test_verify_names_each_place(lakelog: Run, store: Path) -> None:
    second = spoil_second(lakelog, store)
    done = lakelog("verify", store)
    assert done.returncode == 1
    assert "DAMAGED" in done.stdout
    assert "records   2 " in done.stdout
    assert f"record at offset {second}" in done.stderr
    dumped = lakelog("dump", "--records", store)
    assert dumped.returncode == 1
    assert [json.loads(line)["queueOffset"] for line in dumped.stdout.splitlines()] == [0, 2]
    assert f"record at offset {second}" in dumped.stderr
    done = lakelog("dump", store)
    rows = list(map(json.loads, done.stdout.splitlines()))
    assert [row["cqOffset"] for row in rows if row["kind"] == "msg"] == [0, 2]
    assert [row["queueOffset"] for row in rows if row["kind"] == "rec"] == [0, 2]
    assert done.returncode == 1
    assert "queue orders/1 from offset 0: 1 units point to no whole record" in done.stderr


def test_verify_looks_at_the_segments(lakelog: Run, store: Path) -> None:
    for name, length, said in (
        ("stray.txt", 1, "this is no segment"),
        ("00000000000000131072", 65536, "segments are missing"),
        ("00000000000000065536", 100, "is truncated: 100 bytes are left of 65536"),
    ):
        (store / "commitlog" / name).write_bytes(bytes(length))
        done = lakelog("verify", store)
        assert done.returncode == 1
        assert said in done.stderr
        (store / "commitlog" / name).unlink()


def test_unused_settings_are_told_and_do_no_harm(lakelog: Run, store: Path, tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("brokerName=b\nmappedFileSizeCommitLog=65536\n")
    done = lakelog("scan", store, "--json", "--broker-conf", "broker.conf")
    assert done.returncode == 0
    assert "brokerName is not used" in done.stderr
    assert all(json.loads(line) for line in done.stdout.splitlines())


def test_a_closed_pipe_ends_quietly(lakelog: Run, tmp_path: Path) -> None:
    put = lakelog("put", "s", "t", "--stdin", text="line\n" * 20_000)
    assert put.returncode == 0, put.stderr
    command = [sys.executable, "-m", "lakelog_cli.main", "dump", "--records", "s"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 130


def test_ctrl_c_ends_quietly_and_cleanly(tmp_path: Path, lakelog: Run) -> None:
    command = [sys.executable, "-m", "lakelog_cli.main", "put", "s", "t", "--stdin"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(b"x\n" * 512)
        process.stdin.flush()
        assert process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        process.wait(30)  # its stdin is open: the end of stdin would end it, too
        process.stdin.close()
        assert b"Traceback" not in (process.stderr.read() if process.stderr else b"")
    assert process.returncode == 130
    assert lakelog("verify", "s").returncode == 0
    assert not (tmp_path / "s" / "abort").exists()


def test_an_output_on_a_full_disk_is_said(tmp_path: Path, store: Path) -> None:
    command = [sys.executable, "-m", "lakelog_cli.main", "scan", str(store)]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path, check=False
        )
    assert done.returncode == 5
    assert done.stderr == "lakelog: the output cannot be written: No space left on device\n"


BODIES: Final = (
    ("für 5 €".encode(), "'für 5 €'"),
    ("标签".encode(), "'标签'"),
    (b"\xe4\xff", r"b'\xe4\xff'"),
    (b"a\x1b[2J\nb", r"'a\x1b[2J\nb'"),
    ("\u202etxt".encode(), r"'\u202etxt'"),
    ("é".encode() * 61, f"'{'é' * 60}'... (122 bytes)"),
)
"""With what is shown to people."""


def test_a_body_that_is_text_is_printed_as_text(lakelog: Run, tmp_path: Path) -> None:
    with open_store(tmp_path / "bodies", segment_size_bytes="64KiB") as store:
        for body, _ in BODIES:
            store.put(Message("t", body, tags="T", keys=["k1", "k2"], queue_id=0))
    lines = lakelog("scan", "bodies").stdout.splitlines()
    for line, (_, printed) in zip(lines, BODIES, strict=True):
        assert line.endswith(f" tags=T keys=k1,k2 {printed}")


# --- no text of a message can control the terminal that shows it ---

ODD_TOPIC: Final = "bad\u202etopic"


@given(st.text())
def test_what_is_shown_can_be_printed(text: str) -> None:
    assert shown(text).isprintable()
    assert shown(text) == text or not text.isprintable()


def test_control_characters_are_escaped(lakelog: Run) -> None:
    line = {"topic": ODD_TOPIC, "tags": "a\x07b", "keys": "\x1b[2J", "body": "b"}
    put = lakelog("put", "s", "unused", "--jsonl", "-", text=json.dumps(line))
    assert put.returncode == 0, put.stderr
    for command, *more in (("topics",), ("queues",), ("scan",), ("tail", ODD_TOPIC)):
        done = lakelog(command, "s", *more)
        assert done.returncode == 0, done.stderr
        assert "bad\\u202etopic" in done.stdout
        assert ("keys=\\x1b[2J" in done.stdout) == (command in ("scan", "tail"))
        assert done.stdout.replace("\t", "").replace("\n", "").isprintable()


def test_letters_that_the_terminal_lacks(
    lakelog: Run, program: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lakelog("put", "s", "标签", "b").returncode == 0
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    done = program("topics", "s")
    assert (done.returncode, done.stdout) == (0, "\\u6807\\u7b7e\t1\t1\n")
