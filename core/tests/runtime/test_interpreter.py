"""Interpreters in which the store's threads or locks cannot work are refused, not waited for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import lakelog
from core.tests.store.support import SEGMENT, tree
from lakelog.errors import StoreError
from lakelog.store.open import Mode


def gevent(*patched: str) -> SimpleNamespace:
    return SimpleNamespace(is_module_patched=lambda name: name in patched)


def eventlet(*patched: str) -> SimpleNamespace:
    return SimpleNamespace(is_monkey_patched=lambda name: name in patched)


@pytest.mark.parametrize(
    ("name", "module", "words"),
    [
        ("gevent.monkey", gevent("threading", "socket"), "gevent has replaced .* threading"),
        ("gevent.monkey", gevent("queue"), r"patch_all\(thread=False, queue=False\)"),
        ("eventlet.patcher", eventlet("thread"), r"eventlet's monkey_patch\(thread=False\)"),
    ],
)
@pytest.mark.parametrize("mode", ["write", "read"])
def test_threads_that_are_greenlets_are_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    module: SimpleNamespace,
    words: str,
    mode: Mode,
) -> None:
    monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(StoreError, match=words):
        lakelog.open(tmp_path, mode=mode, plugins=[], segment_size_bytes=SEGMENT)
    assert tree(tmp_path) == {}


def test_other_patches_are_none_of_its_business(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gevent.monkey", gevent("socket", "time", "os"))
    monkeypatch.setitem(sys.modules, "eventlet.patcher", eventlet("socket"))
    lakelog.open(tmp_path, plugins=[], segment_size_bytes=SEGMENT).close()


@pytest.mark.parametrize("given", ["", "thread=False", "thread=False, queue=False"])
def test_a_program_of_gevent_works_or_is_refused(tmp_path: Path, given: str) -> None:
    pytest.importorskip("gevent", reason="gevent is not installed")
    code = (
        f"from gevent import monkey\nmonkey.patch_all({given})\n"
        "import sys, lakelog\n"
        "with lakelog.open(sys.argv[1], segment_size_bytes='1MiB') as s:\n"
        "    print(s.put(lakelog.Message('t', b'x')).status.name)\n"
        "print(lakelog.recover(sys.argv[1], segment_size_bytes='1MiB', full=True).records)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "s")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "queue" in given:
        assert done.stdout.split() == ["PUT_OK", "1"], done.stderr
    else:
        assert "gevent has replaced" in done.stderr.splitlines()[-1]


def test_an_interpreter_without_its_lock_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    with pytest.raises(StoreError, match="PYTHON_GIL=1"):
        lakelog.open(tmp_path, plugins=[], segment_size_bytes=SEGMENT)
    assert tree(tmp_path) == {}
