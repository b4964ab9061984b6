"""Descriptors: an owner keeps some for itself, and who is dropped without a close leaves none."""

from __future__ import annotations

import gc
import os
from functools import partial
from pathlib import Path

import pytest

from core.tests.attach.support import OWNER, SEGMENT, a_program, an_owned_hub, until
from lakelog import Message
from lakelog.attach.producer import Producer, connect
from lakelog.errors import AttachRefused

_FEW = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))\n"


def test_an_owner_keeps_descriptors_for_its_own_files(tmp_path: Path) -> None:
    with a_program(_FEW + OWNER, tmp_path, "none") as owner:
        assert "open" in owner.line()
        attached: list[Producer] = []
        with pytest.raises(AttachRefused, match=r"no descriptors left .* \(ulimit -n 100\)"):
            attached.extend(iter(partial(connect, tmp_path), None))
        assert len(attached) > 5
        for producer in attached:
            assert producer.put(Message("t", b"x")).size > 0
        batch = [Message("t", bytes(10_000))] * 20
        for _ in range(3 * SEGMENT // 200_000):
            attached[0].put_batch(batch)
        for producer in attached:
            producer.close()
        owner.end()


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_producer_that_is_dropped_leaves_no_descriptors(tmp_path: Path) -> None:
    with an_owned_hub(tmp_path) as (_, hub):
        connect(tmp_path).close()
        until(lambda: not hub.clients())
        before = _descriptors()
        for _ in range(3):
            assert connect(tmp_path).put(Message("t", b"x")).size > 0
        gc.collect()
        until(lambda: _descriptors() <= before)


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
