"""The cost of an idle ``serve``, and the figures in its status file."""

from __future__ import annotations

import logging
import re
import time
from pathlib import Path

import psutil
import pytest

from core.tests.store.support import open_small
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.pages.page_view import PageView
from lakelog_daemon import status
from lakelog_daemon.status import StatusReporter
from plugins.daemon.tests.support import Serving, serving

_log = logging.getLogger(__name__)
MOST_MIB = 150
MOST_PERCENT = 1.0
USUAL = ("serve.status_interval_ms=1000",)


@pytest.mark.slow
def test_an_idle_serve_costs_little(tmp_path: Path) -> None:
    with serving(tmp_path, settings=USUAL) as serve:
        mib, percent = cost(serve, seconds=20)
        assert serve.stop() == 0
    _log.warning("%.0f MiB, %.2f %% of a core", mib, percent)
    assert mib < MOST_MIB
    assert percent < MOST_PERCENT


def cost(serve: Serving, seconds: float) -> tuple[float, float]:
    """Memory as PSS in MiB, and CPU time in per cent of a core; the sum of all its processes."""
    owner = psutil.Process(serve.process.pid)
    family = [owner, *owner.children(recursive=True)]
    time.sleep(3)
    before = sum(sum(each.cpu_times()[:2]) for each in family)
    time.sleep(seconds)
    used = sum(sum(each.cpu_times()[:2]) for each in family) - before
    return sum(each.memory_full_info().pss for each in family) / 2**20, used / seconds * 100


def test_every_name_of_the_status_file_is_described(tmp_path: Path) -> None:
    with open_small(tmp_path / "s") as store:
        files = RealFileSystem()
        page = PageView.open(files, store.path)
        assert page is not None
        log = store.path / "commitlog"
        found = StatusReporter(files, store, log, page, list, lambda: 0).status(status.SERVING)
    assert status.__doc__ is not None
    described = set(re.findall(r"\w+", status.__doc__))
    names = {*found, *found["positions"], *found["lags"], *found["disks"][0], *found["flush"]}
    names |= {*found["processes"][0], *found["rates"]}
    assert names - described == set()
