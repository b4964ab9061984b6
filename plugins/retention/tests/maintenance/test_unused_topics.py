"""Topics with queues, but without records that are still in the log."""

from __future__ import annotations

from lakelog.format.units import Units
from lakelog_retention.maintenance.index_trim import unused_topics


class Queues:
    """Bounds of queues, by topic and queue id, with 100 bytes per message."""

    def __init__(self, **topics: list[tuple[int, int]]) -> None:
        self.found = {(t, q): each for t, qs in topics.items() for q, each in enumerate(qs)}

    def queues(self) -> list[tuple[str, int]]:
        return list(self.found)

    def bounds(self, queue: tuple[str, int], minimum: int) -> tuple[int, int] | None:
        first, end = self.found[queue]
        return min(end, max(first, minimum // 100)), end

    def units(self, queue: tuple[str, int], first: int, count: int) -> Units:
        raise NotImplementedError

    def kind(self, queue: tuple[str, int]) -> str:
        return "SimpleCQ"


def test_topics_with_nothing_left() -> None:
    queues = Queues(old=[(0, 5), (0, 3)], half=[(0, 5), (0, 12)], new=[(0, 20)], empty=[(4, 4)])
    assert unused_topics(queues, 0) == ["empty"]
    assert unused_topics(queues, 500) == ["empty", "old"]
