"""lakelog: the log, and each queue against it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import lakelog
from lakelog_doctor.check import check
from tests.bench.comparison.reading import Report


class Reader:
    def __init__(self, directory: Path, options: Mapping[str, Any], report: Report) -> None:
        self._directory, self._options, self._report = directory, options, report
        self._store = lakelog.open(directory, **options)
        found = self._store.recovery
        assert found is not None, "nobody else has it open"
        for each in (*found.cut, *found.missing, *found.damage):
            report(f"recovery: {each}")

    def messages(self) -> Iterator[tuple[int, bytes]]:
        logged = defaultdict[int, int](int)
        for message in self._store.scan(on_damage=lambda damage: self._report(f"log: {damage}")):
            logged[message.queue_id] += 1
            yield message.queue_id, bytes(message.body)
        for queue in self._store.queues():
            in_queue = sum(1 for _ in self._store.read(queue.topic, queue.queue_id))
            if in_queue != logged[queue.queue_id]:
                found = f"{in_queue} of {logged[queue.queue_id]} messages"
                self._report(f"queue {queue.queue_id} has {found}")

    def check(self) -> None:
        opening = {"accelerator": self._options["accelerator"]}
        for problem in check(self._directory, **opening):
            self._report(f"check: {problem}")
