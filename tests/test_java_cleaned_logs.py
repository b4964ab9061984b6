"""Directories that lakelog cleaned, or was killed while cleaning: the real store reads the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import pytest

import lakelog
import lakelog_hash_index.plugin as hash_index
from lakelog import Message
from lakelog.files.filesystem import RealFileSystem
from lakelog_testing import SurplusCleaner
from tests.support.killing import ROOT
from tests.support.rows import by_kind, difference
from tests.support.twostores import JAVA, SEGMENT, SETTINGS, compare, ours, recovered

if TYPE_CHECKING:
    from tests.oracle.java import Oracle

MESSAGES: Final = 1500
LEFT: Final = 3


@attrs.frozen
class Killing(RealFileSystem):
    """Kills its process before the third segment goes."""

    def unlink(self, path: Path) -> None:
        if path.parent.name == "commitlog" and int(path.name) == 2 * SEGMENT:
            os.kill(os.getpid(), signal.SIGKILL)
        super().unlink(path)


def fill(path: Path) -> None:
    with lakelog.open(path, plugins=[hash_index], flush="none", **SETTINGS) as store:
        for number in range(MESSAGES):
            body = b"%06d" % number + bytes(500 + number % 300)
            topic = f"topic{number % 3}"
            store.put(Message(topic, body, keys=f"key{number}", queue_id=number % 2))


def clean(path: Path, **more: Any) -> None:
    plugins = [SurplusCleaner(keep=LEFT), hash_index]
    with lakelog.open(
        path, plugins=plugins, flush="none", cleaner="surplus", **SETTINGS, **more
    ) as store:
        report = store.delete_expired()
        assert len(report.deleted) > LEFT
        assert report.other_files > LEFT


def test_the_real_store_reads_the_same_of_a_cleaned_store(oracle: Oracle, tmp_path: Path) -> None:
    path = tmp_path / "store"
    fill(path)
    clean(path)
    found = ours(path)
    minimum = by_kind(found)["store"][0]["minPhyOffset"]
    assert minimum > LEFT * SEGMENT
    assert len(by_kind(found)["rec"]) > 100
    assert difference(found, oracle.dump(path, JAVA)) == ""
    assert difference(found, oracle.dump(path, JAVA, in_place=True)) == ""
    with lakelog.open(path, flush="none", **SETTINGS) as store:
        assert store.min_offset == minimum


@pytest.mark.slow
def test_the_real_store_opens_what_a_killed_cleaning_left(oracle: Oracle, tmp_path: Path) -> None:
    path = tmp_path / "store"
    fill(path)
    code = f"from {__name__} import *; clean(Path({str(path)!r}), files=Killing())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    copy = recovered(path)
    found = ours(copy)
    assert by_kind(found)["store"][0]["minPhyOffset"] == 2 * SEGMENT
    compare(path, found, oracle.dump(path, JAVA))
    assert difference(found, oracle.dump(copy, JAVA, in_place=True)) == ""
