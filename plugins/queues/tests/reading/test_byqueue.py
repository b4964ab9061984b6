"""Which queues there are, in Java's order."""

from __future__ import annotations

from lakelog_queues.finding.byqueue import QueueList
from lakelog_queues.finding.results import QueueInfo
from plugins.queues.tests.reading.support import QueuesInMemory


def test_queues_in_the_order_of_utf16() -> None:
    queues = QueuesInMemory()
    for queue in [("\uffe5", 0), ("\U0001f600", 0), ("b", 10), ("b", 2), ("a", 0)]:
        queues.of[queue] = []
    queues.of["b", 2] = [(4, 100, 91, 0, 1), (5, 300, 92, 0, 1)]
    listed = QueueList(queues, lambda: 0)
    assert listed.topics() == ["a", "b", "\U0001f600", "\uffe5"]
    infos = listed.infos()
    assert [(each.topic, each.queue_id) for each in infos] == [
        ("a", 0),
        ("b", 2),
        ("b", 10),
        ("\U0001f600", 0),
        ("\uffe5", 0),
    ]
    assert infos[1] == QueueInfo("b", 2, "SimpleCQ", 4, 6, 392)
    assert infos[0] == QueueInfo("a", 0, "SimpleCQ", 0, 0, 0)
    assert listed.infos("b") == infos[1:3]
    assert listed.infos("none") == []
    assert listed.bounds("b", 2) == (4, 6)
    assert listed.bounds("c", 2) is None
