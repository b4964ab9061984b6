"""A reader in a process of its own, which looks at a store all the while others break it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.faults.conftest import Outcome, Workers
from tests.faults.jobs import STOP


@contextmanager
def followed(path: Path, settings: Mapping[str, Any]) -> Iterator[list[Outcome]]:
    """Have a process read the store meanwhile; what it told is there at the end."""
    told = list[Outcome]()
    stop = path.with_name(STOP)

    def follow(reader: Workers) -> None:
        told.append(reader.run(path, settings, workload="follow", patience_seconds=1000, call=None))

    with Workers.started() as reader:
        reader.run(path, settings, workload="read")  # so that it is awake when things begin
        thread = threading.Thread(target=follow, args=(reader,))
        thread.start()
        try:
            yield told
        finally:
            stop.touch()
            thread.join()


def check_followed(told: list[Outcome], must: Iterable[str]) -> None:
    """Nothing that must stay vanished before its eyes, and nothing moved."""
    assert told, "the reader broke down"
    assert told[0].exit == 0
    assert max(event["looked"] for event in told[0].told("looked")) > 0
    assert not told[0].has("moved")
    vanished = {key for event in told[0].told("vanished") for key in event["vanished"]}
    assert vanished.isdisjoint(must)
