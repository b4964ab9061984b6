"""``lakelog replication``."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from lakelog.errors import StoreError
from lakelog_cli.app import make_app
from lakelog_replication import plugin
from lakelog_replication.status import STATUS_FILE, read_status
from lakelog_testing import FakeReplicatedLog, ScriptedSlave
from plugins.replication.tests.masters import eventually, serving


def run(*arguments: object) -> Result:
    app = make_app()
    plugin.lakelog_cli_commands(app)
    runner = CliRunner(env={"COLUMNS": "200"})
    return runner.invoke(app, ["replication", *map(str, arguments)])


def test_status_lists_the_slaves(tmp_path: Path) -> None:
    log = FakeReplicatedLog(tmp_path / "commitlog")
    log.append(1000)
    more = {"in_sync_replicas": 2, "learners": ("127.0.0.2",), "allow": ("127.0.0.0/30",)}
    with serving(log, tmp_path, **more) as master:
        assert master.port is not None
        with (
            ScriptedSlave(master.port) as first,
            ScriptedSlave(master.port, source="127.0.0.2") as learner,
            ScriptedSlave(master.port, source="127.0.0.9") as stranger,
        ):
            assert stranger.is_closed()
            first.report(1)
            first.bytes_up_to(1000)
            learner.report(600)
            learner.bytes_up_to(1000, report=False)

            def rows() -> list[dict[str, Any]]:
                return [
                    json.loads(each)
                    for each in run("status", tmp_path, "--json").stdout.splitlines()
                ]

            eventually(
                lambda: (
                    [(each["slave"], each["acked"], each["learner"]) for each in rows()]
                    == [("127.0.0.1", 1000, False), ("127.0.0.2", 600, True)]
                )
            )
            assert [each["behind_bytes"] for each in rows()] == [0, 400]
            said = run("status", tmp_path).stderr
            assert f"process {os.getpid()} sends, at 127.0.0.1:{master.port}" in said
            assert "a put waits for 2 copies, this store included" in said
            assert "refused 127.0.0.9: its address is not in rocketmq-ha.allow" in said


def test_status_of_a_store_without_slaves_says_so(tmp_path: Path) -> None:
    done = run("status", tmp_path)
    assert done.exit_code == 0
    assert "no process has replicated this store" in done.stderr
    assert run("status", tmp_path / "none").exception is not None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"version": 2, "slaves": []}', "\x00"])
def test_a_damaged_status_is_an_error_that_names_the_file(tmp_path: Path, content: str) -> None:
    file = tmp_path / "lakelog" / STATUS_FILE
    file.parent.mkdir()
    file.write_text(content)
    with pytest.raises(StoreError, match=f"{STATUS_FILE}: the replication status cannot be read"):
        read_status(tmp_path)


# --- adopt ---


@contextmanager
def broker(answer: bytes) -> Iterator[tuple[int, Future[bytes]]]:
    """Takes one request; gives its bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:

        def serve() -> bytes:
            sock, _ = server.accept()
            with sock, sock.makefile("rb") as stream:
                (length,) = struct.unpack(">I", stream.read(4))
                request = stream.read(length)
                sock.sendall(answer)
            return request

        yield server.getsockname()[1], pool.submit(serve)


def answered(header: object) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack(">II", 4 + len(text), len(text)) + text


def test_adopt_sends_one_request() -> None:
    with broker(answered({"code": 0})) as (port, request):
        done = run("adopt", f"127.0.0.1:{port}", "--master", "10.0.0.1:10912")
        assert done.exit_code == 0, done.exception
        sent = request.result(20)
    header = json.loads(sent[4:])
    assert struct.unpack(">I", sent[:4]) == (len(sent) - 4,)
    assert header["code"] == 906
    assert header["extFields"] == {
        "masterHaAddress": "10.0.0.1:10912",
        "masterAddress": "10.0.0.1:10911",
        "masterFlushOffset": "0",
    }


@pytest.mark.parametrize(
    "answer",
    [
        answered({"code": 1, "remark": "not a slave"}),
        answered([]),
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00\x00",
        b"",
        struct.pack(">II", 1 << 31, 10),
    ],
)
def test_a_broker_that_answers_otherwise_is_an_error(answer: bytes) -> None:
    with broker(answer) as (port, _):
        done = run("adopt", f"127.0.0.1:{port}", "--master", "10.0.0.1:10912")
    assert done.exit_code != 0
    assert f"lakelog: 127.0.0.1:{port}" in done.stderr


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:0", "host:65536", "host:x"])
def test_an_address_that_is_none_is_wrong_usage(text: str) -> None:
    done = run("adopt", text, "--master", "10.0.0.1:10912")
    assert done.exit_code == 2
    assert "give HOST:PORT" in done.stderr
