"""The selection of records that become rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import attrs
import numpy as np

from lakelog.format.sysflag import PREPARED
from lakelog_lake.log.system_topics import is_system_topic

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lakelog.codec import RecordBatch


@attrs.frozen
class Chosen:
    """The condition for a record to become a row.

    :ivar system_topics: whether RocketMQ's own topics are included
    :ivar topics: the selected topics; ``None`` for all
    :ivar since_ms: least store time, in ms since 1970; ``None`` for no limit
    """

    system_topics: bool = False
    topics: frozenset[str] | None = None
    since_ms: int | None = None

    @classmethod
    def of(
        cls, topics: Sequence[str] | None, since: datetime | None, *, system_topics: bool = False
    ) -> Chosen:
        """Build a condition from options; a time without a zone is in UTC."""
        at = None
        if since is not None:
            aware = since if since.tzinfo is not None else since.replace(tzinfo=UTC)
            at = int(aware.timestamp() * 1000)
        return cls(system_topics, frozenset(topics) if topics else None, at)

    @property
    def is_partial(self) -> bool:
        """Whether some messages of users are left out."""
        return self.topics is not None or self.since_ms is not None

    def description(self, *, of_one_topic: bool = False) -> str:
        """Describe the selection, for users and for the comparison with another selection.

        :param of_one_topic: whether to describe a table of a single chosen topic
        """
        if of_one_topic:
            what = "all messages of its topic"
        elif self.topics is not None:
            names = json.dumps(sorted(self.topics), ensure_ascii=False)
            what = f"messages of the topics {names}"
        else:
            what = "all messages"
            what += (
                ", of system topics too" if self.system_topics else " but those of system topics"
            )
        since = "" if self.since_ms is None else f" stored since {self.since_ms} ms"
        return what + since

    def takes(self, topic: str) -> bool:
        """Whether messages of ``topic`` are selected; a topic given by name always is."""
        if self.topics is not None:
            return topic in self.topics
        return self.system_topics or not is_system_topic(topic)


EVERYTHING: Final = Chosen()
"""All messages of users."""


def coded_topics(batch: RecordBatch) -> tuple[list[str], NDArray[np.int64]]:
    """The distinct topics of ``batch``, and the index of each record's topic among them."""
    from lakelog_queues.arrow import to_arrow

    column = to_arrow(batch, columns=["topic"]).column(0).dictionary_encode()
    codes = column.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return column.dictionary.to_pylist(), codes


def chosen_rows(
    batch: RecordBatch, topics: Sequence[str], codes: NDArray[np.int64], chosen: Chosen
) -> NDArray[np.int64]:
    """The indices of the records of ``batch`` that become rows.

    :param topics: the distinct topics of the batch
    :param codes: for each record the index of its topic
    """
    wanted = (batch.sys_flags & PREPARED) == 0
    of_topic = np.array([chosen.takes(each) for each in topics], np.bool_)
    wanted &= of_topic[codes]
    if chosen.since_ms is not None:
        wanted &= batch.store_timestamps_ms >= chosen.since_ms
    return np.flatnonzero(wanted)
