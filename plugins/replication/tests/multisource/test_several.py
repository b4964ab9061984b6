"""Several masters in one folder of copies: each goes on whatever happens to the others."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from lakelog_testing.samples import copy_store
from lakelog_testing.scripted import ScriptedMaster
from plugins.replication.tests.multisource.programs import (
    PATIENCE_SECONDS,
    end_of,
    program,
    reaches,
)
from plugins.replication.tests.replica.copies import SEGMENT, log_of, make_log, until
from tests.support.commands import invoke
from tests.support.sampling import chance

pytestmark = pytest.mark.timeout(300)


def test_each_master_has_a_store_of_its_own(tmp_path: Path) -> None:
    logs = [make_log(tmp_path / name, 30 + 10 * index) for index, name in enumerate("ab")]
    folder = tmp_path / "copies"
    with (
        ScriptedMaster(logs[0], segment_bytes=SEGMENT) as one,
        ScriptedMaster(logs[1], segment_bytes=SEGMENT) as other,
        program(
            folder, "replicate", "--from", f"a={one.address}", "--from", f"b={other.address}"
        ) as copying,
    ):
        reaches(folder / "a", one.end)
        reaches(folder / "b", other.end)
        until(lambda: copying.row("b").get("health") == "ok")
        shown = json.loads(top(folder, "--json"))
        assert shown["masters"]["b"]["slaves"] == other.address
        assert {"a", "b"} <= {each["name"] for each in shown["processes"]}
        assert "no positions" not in top(folder, "--once")
        assert copying.stop() == 0, copying.said()
    assert [log_of(folder / name, len(log)) for name, log in zip("ab", logs, strict=True)] == logs


def top(folder: Path, *words: str) -> str:
    """The output of ``lakelog top``."""
    done = invoke("top", folder, *words)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_master_whose_log_differs_stops_alone(tmp_path: Path) -> None:
    shared = make_log(tmp_path / "master", 60)
    copy_store(tmp_path / "master", tmp_path / "former")
    right = make_log(tmp_path / "master", 40, first=60)
    wrong = make_log(tmp_path / "former", 30, first=9000)
    folder = tmp_path / "copies"
    with (
        ScriptedMaster(right, segment_bytes=SEGMENT) as bad,
        ScriptedMaster(shared, segment_bytes=SEGMENT) as good,
        program(
            folder, "replicate", "--from", f"bad={bad.address}", "--from", f"good={good.address}"
        ) as copying,
    ):
        reaches(folder / "bad", bad.end)
        bad.set_back(len(shared), wrong[len(shared) :])
        until(lambda: copying.row("bad").get("restarts", 0) > 1, PATIENCE_SECONDS)
        assert copying.row("bad")["last_exit"] == "ended with code 4"
        good.append(right[len(shared) :])
        reaches(folder / "good", len(right))
        until(lambda: copying.row("bad").get("health") == "restarting", PATIENCE_SECONDS)
        code, said = copying.stop(), copying.said()
    assert code == 4, said
    assert "the copy of bad is restarting (ended with code 4)" in said
    assert f"from {len(shared)} to {len(right)}" in said
    assert log_of(folder / "bad", len(right)) == right


def test_a_master_that_is_away_is_tried_again(tmp_path: Path) -> None:
    log, folder = make_log(tmp_path / "master", 40), tmp_path / "copies"
    with ScriptedMaster(log, segment_bytes=SEGMENT) as gone:
        address = gone.address
    words = ["--from", f"gone={address}"]
    with ScriptedMaster(log, segment_bytes=SEGMENT) as there:
        words += ["--from", f"there={there.address}"]
        with program(folder, "replicate", *words) as copying:
            reaches(folder / "there", len(log))
            until(lambda: copying.row("gone").get("restarts", 0) > 0, PATIENCE_SECONDS)
            assert "gone: " in copying.said()
            assert "cannot be asked where to begin" in copying.said()
            port = int(address.rpartition(":")[2])
            with ScriptedMaster(log, segment_bytes=SEGMENT, port=port):
                reaches(folder / "gone", len(log))
                until(lambda: copying.row("gone").get("health") == "ok", PATIENCE_SECONDS)
                assert copying.stop() == 0, copying.said()


def test_a_master_with_another_address_is_copied_from_there(tmp_path: Path) -> None:
    """The file of known masters has its former address."""
    log, folder = make_log(tmp_path / "master", 40), tmp_path / "copies"
    with ScriptedMaster(log, segment_bytes=SEGMENT) as gone:
        former = gone.address
    (folder / "a").mkdir(parents=True)
    (folder / "lakelog").mkdir()
    known = {"version": 1, "masters": {"a": former}}
    (folder / "lakelog" / "masters.json").write_text(json.dumps(known))
    with ScriptedMaster(log, segment_bytes=SEGMENT) as master:
        words = ["--from", f"a={master.address}", "--from-name-server", former]
        with program(folder, "replicate", *words) as copying:
            until(lambda: f"a is at {master.address} now" in copying.said(), 30)
            reaches(folder / "a", len(log))
            assert copying.stop() == 0, copying.said()


def test_a_killed_copy_and_a_killed_supervisor_come_on(tmp_path: Path) -> None:
    log, folder = make_log(tmp_path / "master", 200), tmp_path / "copies"
    with ScriptedMaster(log[: len(log) // 2], segment_bytes=SEGMENT) as master:
        words = ["replicate", "--from", f"a={master.address}"]
        with program(folder, *words) as copying:
            until(lambda: copying.row("a").get("pid") is not None, PATIENCE_SECONDS)
            reaches(folder / "a", 1)
            pid = copying.row("a")["pid"]
            assert b"--set" not in Path(f"/proc/{pid}/cmdline").read_bytes(), "may be a secret"
            os.kill(pid, signal.SIGKILL)
            until(lambda: copying.row("a").get("restarts") == 1, PATIENCE_SECONDS)
            assert copying.row("a")["last_exit"] == "ended by SIGKILL"
        with program(folder, *words) as copying:
            master.append(log[len(log) // 2 :])
            reaches(folder / "a", len(log))
            until(lambda: copying.row("a").get("health") == "ok", PATIENCE_SECONDS)
            assert copying.stop() == 0, copying.said()
    assert log_of(folder / "a", len(log)) == log


SOURCES = "file", "set"


@pytest.mark.parametrize(
    "source", [None, *(pytest.param(each, marks=pytest.mark.slow) for each in SOURCES)]
)
def test_serve_copies_the_masters_of_its_settings(tmp_path: Path, source: str | None) -> None:
    source = source or chance().choice(SOURCES)
    log, folder = make_log(tmp_path / "master", 40), tmp_path / "copies"
    with (
        ScriptedMaster(log, segment_bytes=SEGMENT) as one,
        ScriptedMaster(log, segment_bytes=SEGMENT) as other,
    ):
        masters = f'["a={one.address}", "{other.address}"]'
        if source == "file":
            (folder / "lakelog").mkdir(parents=True)
            (folder / "lakelog" / "lakelog.toml").write_text(
                'replicator = "rocketmq-ha"\n[serve]\nservices = ["beside=sleep 600"]\n'
                f'[rocketmq-ha]\nrole = "slave"\nmasters = {masters}\n'
            )
            given: dict[str, object] = {}
        else:
            given = {
                "replicator": "rocketmq-ha",
                "rocketmq-ha.role": "slave",
                "rocketmq-ha.masters": masters,
                "serve.services": '["beside=sleep 600"]',
            }
        with program(folder, "serve", **given) as copying:
            reaches(folder / "a", len(log))
            reaches(folder / other.address.replace(":", "_"), len(log))
            until(lambda: copying.row("beside").get("health") == "ok", PATIENCE_SECONDS)
            assert copying.stop() == 0, copying.said()


def test_wrong_use_is_an_error_before_anything_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "copies"
    for words, said in (
        (("--from", "../a=127.0.0.1:1"), "cannot name the folder"),
        (("--from", "a=here"), "HOST:PORT"),
        (("--from-name-server", "here"), "HOST:PORT"),
        (("--from", "a=h:1", "--from", "b=h:2", "--broker", "h:3"), "once for each --from"),
    ):
        done = invoke("replicate", folder, *words)
        assert (done.exit_code, said in " ".join(done.stderr.split())) == (2, True), done.stderr
        assert not folder.exists()
    for given, said in (  # by the log, whose handlers a process keeps
        (("--from", "a=127.0.0.1:1", "--from", "a=127.0.0.1:2"), "two masters are called 'a'"),
        (("--from", "a=h:1", "--set", "rocketmq-ha.vouch=flushed"), "listenPort of a"),
    ):
        with program(folder, "replicate", *given) as copying:
            assert copying.process.wait(PATIENCE_SECONDS) == 2, copying.said()
            assert said in " ".join(copying.said().split())
        assert not folder.exists()


def test_a_store_and_a_folder_in_use_are_refused(tmp_path: Path) -> None:
    log, folder = make_log(tmp_path / "store", 40), tmp_path / "copies"
    with ScriptedMaster(log, segment_bytes=SEGMENT) as master:
        words = ["replicate", "--from", f"a={master.address}"]
        with program(tmp_path / "store", *words) as copying:
            assert copying.process.wait(PATIENCE_SECONDS) == 3
            assert "a store is here" in copying.said()
        with program(folder, *words) as copying:
            reaches(folder / "a", len(log))
            with program(folder, *words) as second:
                assert second.process.wait(PATIENCE_SECONDS) == 3
                assert "another process copies masters to this folder" in second.said()
            assert copying.stop() == 0, copying.said()
        assert end_of(folder / "a") == len(log)
        (tmp_path / "file").touch()
        with program(tmp_path / "file", *words) as copying:
            assert copying.process.wait(PATIENCE_SECONDS) == 3
