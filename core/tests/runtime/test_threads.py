"""Threads that the system refuses to start."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import pytest

from lakelog.errors import ThreadNotStarted
from lakelog.runtime.threads import submitted


def test_work_without_a_thread_is_refused_and_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor keeps it, and would run it with the next work."""

    def refuse(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    ran: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        with monkeypatch.context() as patched:
            patched.setattr(Thread, "start", refuse)
            with pytest.raises(ThreadNotStarted):
                submitted(pool.submit, "lakelog-test", lambda: ran.append("refused"))
        submitted(pool.submit, "lakelog-test", lambda: ran.append("later")).result(20)
    assert ran == ["later"]
