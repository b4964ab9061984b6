"""Late puts are logged once a second with their number, and none is missed."""

from __future__ import annotations

import logging

import pytest

from lakelog_flush.tardy import Tardy


def test_one_line_per_second_and_the_rest_at_the_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr("lakelog_flush.tardy.time.monotonic", lambda: clock[0])
    late = Tardy(0.25)
    with caplog.at_level(logging.WARNING, "lakelog"):
        late.add(0)
        late.tell()
        for step in range(30):  # 3 s
            clock[0] = 100 + step / 10
            late.add(2)
        late.add(1)
        late.tell()
        late.tell()
    counts = [record.args[0] for record in caplog.records if isinstance(record.args, tuple)]
    assert counts == [2, 20, 20, 19]
    assert "within 250 ms" in caplog.text
