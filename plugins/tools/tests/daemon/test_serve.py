"""``lakelog serve`` in separate processes: services, signals, stops, files."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path

import lakelog
from lakelog import GetStatus, Message
from lakelog_testing.threads import hold
from plugins.tools.tests.daemon.support import (
    IDLE,
    SECONDS,
    STUBBORN,
    Serving,
    clean_environ,
    command,
    is_there,
    service,
    serving,
    started,
)
from tests.support.commands import invoke
from tests.support.waiting import until


def test_a_stop_is_in_order_and_leaves_a_clean_store(tmp_path: Path) -> None:
    with serving(tmp_path, *service("idle", IDLE)) as serve:
        child = serve.running("idle")
        pid_file = serve.store / "lakelog/serve.pid"
        assert int(pid_file.read_text()) == serve.process.pid
        assert (serve.store / "abort").exists()
        os.killpg(serve.process.pid, signal.SIGTERM)  # it comes to all of the group
        assert serve.process.wait(SECONDS) == 0
        assert not is_there(child)
    assert not (serve.store / "abort").exists()
    assert [line for line in serve.log() if line["level"] not in {"DEBUG", "INFO"}] == []
    assert not pid_file.exists()
    assert serve.status()["state"] == "stopped"
    assert serve.row("idle")["state"] == "stopped"
    assert serve.events() == ["serving", "started", "stopping", "stopped", "stopped"]


def test_a_second_signal_hurries(tmp_path: Path) -> None:
    with serving(tmp_path, *service("deaf", STUBBORN)) as serve:
        child = serve.running("deaf")
        serve.said("output")
        serve.process.terminate()
        serve.said("stopping")
        assert serve.stop() == 0
        assert not is_there(child)
        assert not (serve.store / "abort").exists()
    assert serve.events()[-5:] == ["stopping", "hurried", "killed", "stopped", "stopped"]


def test_of_two_at_once_one_serves_and_the_other_says_who(tmp_path: Path) -> None:
    with serving(tmp_path) as serve:
        done = subprocess.run(
            command(tmp_path), capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert done.returncode == 3
        assert f"process {serve.process.pid} " in done.stderr
        assert "has the services of this store, and keeps them" in done.stderr
        assert (serve.store / "lakelog/serve.pid").read_text() == f"{serve.process.pid}\n"
        assert serve.stop() == 0


def test_what_a_killed_serve_leaves_is_ended_and_written_over(tmp_path: Path) -> None:
    options = (*service("idle", IDLE), *service("held", IDLE))
    never = ("serve.hang_timeout_ms=0",)
    with serving(tmp_path, *options, settings=never) as serve:
        idle, held = serve.running("idle"), serve.running("held")
        hold(held)
        until(lambda: serve.row("held")["pid"])
        serve.process.kill()
        serve.process.wait(SECONDS)
        until(lambda: not is_there(idle))  # Linux sent SIGTERM
        assert is_there(held)
        assert (serve.store / "lakelog/serve.pid").read_text() == f"{serve.process.pid}\n"
    (serve.store / "lakelog/serve.json.tmp").write_bytes(b"half")
    with serving(tmp_path, *options) as successor:
        assert successor.said("leftover")["pid"] == held
        until(lambda: not is_there(held))
        assert successor.running("held") != held
        assert (serve.store / "lakelog/serve.pid").read_text() == f"{successor.process.pid}\n"
        assert successor.stop() == 0


def test_a_full_log_harms_nothing(tmp_path: Path) -> None:
    flood = service("flood", "import time; [print('x' * 50, flush=True) for _ in range(100)]")
    arguments = command(tmp_path, "--log-file", "/dev/full", *flood)
    with subprocess.Popen(arguments, env=clean_environ(), stdin=subprocess.DEVNULL) as process:
        try:
            serve = started(Serving(process, tmp_path / "store", tmp_path / "log"))
            until(lambda: serve.status()["log_lines_dropped"] > 100)
            assert serve.stop() == 0
        finally:
            process.kill()


def test_a_log_file_that_was_moved_away_is_made_anew(tmp_path: Path) -> None:
    with serving(tmp_path) as serve:
        until(lambda: "serving" in serve.events())
        serve.log_file.rename(tmp_path / "log.1")
        serve.process.send_signal(signal.SIGHUP)
        until(serve.log_file.exists)
        assert serve.said("log_reopened")
        assert serve.stop() == 0
    assert "stopped" in serve.events()


def test_a_manager_is_told(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(SECONDS)
        told = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
        heard: list[str] = []

        def hear(line: str) -> bool:
            while line not in heard:
                heard.extend(manager.recv(4096).decode().splitlines())
            return True

        with serving(tmp_path, environ=told) as serve:
            assert hear("READY=1")
            assert hear("WATCHDOG=1")
            assert hear("STATUS=serving, ok")
            assert serve.stop() == 0
            assert hear("STOPPING=1")


def test_what_cannot_be_run_is_wrong_usage_before_anything_is_touched(tmp_path: Path) -> None:
    done = invoke("serve", tmp_path / "store", "--service", "x=no-such-program")
    assert done.exit_code == 2, done.stderr
    assert "service 'x': no program 'no-such-program' is here that may be run" in done.stderr
    assert not (tmp_path / "store").exists()


# --- with producers and readers in other processes ---


def put(store: lakelog.Store, first: int, count: int = 20) -> None:
    for number in range(first, first + count):
        store.put(Message("t", b"%d" % number, queue_id=0))


def bodies(path: Path, count: int) -> list[bytes]:
    """Wait for ``count`` messages in a queue, and return their bodies, by a reader."""
    with lakelog.open(path, mode="read", segment_size_bytes="64KiB") as reader:
        until(lambda: reader.queue_bounds("t", 0) == (0, count))
        found = reader.get("t", 0, 0, count)
        assert found.status is GetStatus.FOUND
        return [bytes(each.body) for each in found.messages]


def test_puts_go_on_while_services_fall_and_come_back(tmp_path: Path) -> None:
    with serving(tmp_path, *service("idle", IDLE)) as serve, lakelog.open(serve.store) as store:
        put(store, 0)
        os.kill(serve.running("idle"), signal.SIGKILL)
        put(store, 20)
        serve.running("idle", restarts=1)
        hold(serve.running("idle"))
        put(store, 40)
        serve.running("idle", restarts=2)
        put(store, 60)
        until(lambda: serve.status()["positions"]["records"] == 80)
        assert bodies(serve.store, 80) == [b"%d" % number for number in range(80)]
        put(store, 80)
        assert serve.stop() == 0
    assert not (serve.store / "abort").exists()
    assert bodies(serve.store, 100) == [b"%d" % number for number in range(100)]
