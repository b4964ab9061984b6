"""Topics for internal use of a broker or a repair (RocketMQ's ``TopicValidator``).

Delayed messages wait in such topics, and are stored again under their real topic on delivery. So
rows of both topics would be duplicates.
"""

from __future__ import annotations

from typing import Final

from lakelog.format.properties import REPAIRED_TOPIC, SCHEDULE_TOPIC

SYSTEM_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        REPAIRED_TOPIC,
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "CHECKPOINT_TOPIC",
        "OFFSET_MOVED_EVENT",
        "SELF_TEST_TOPIC",
        "BenchmarkTest",
        "TBW102",
    }
)
PREFIXES: Final = ("rmq_sys_", "%RETRY%")


def is_system_topic(topic: str) -> bool:
    """Whether ``topic`` is internal; a topic of dead letters, ``%DLQ%``, is not.

    >>> is_system_topic("%RETRY%group"), is_system_topic("orders")
    (True, False)
    """
    return topic in SYSTEM_TOPICS or topic.startswith(PREFIXES)
