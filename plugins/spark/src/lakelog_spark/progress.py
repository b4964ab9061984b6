"""How far a streaming query is behind its log; Spark 4.1 lets no Python source report that itself.

Give it the ``endOffset`` of a query's progress, or of a listener's event:

>>> lag("STORE", query.lastProgress["sources"][0]["endOffset"])   # doctest: +SKIP
"""

from __future__ import annotations

import json
import os
import time
from ast import literal_eval
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

import lakelog
from lakelog_lake.log.ends import end_of
from lakelog_lake.log.landmarks import Landmarks


@attrs.frozen
class StreamLag:
    """What a query has not read yet.

    :ivar bytes: of the log
    :ivar messages: with a unit in a queue
    :ivar seconds: since the oldest of them was stored; 0 where nothing is left
    """

    bytes: int
    messages: int
    seconds: float


def place_of(offset: str | Mapping[str, Any]) -> int:
    """The place in the log that an offset of a query says, in bytes.

    PySpark shows offsets in its progress as Python writes a dict, and elsewhere as JSON.
    """
    if not isinstance(offset, str):
        return int(offset["offset"])
    try:
        return int(json.loads(offset)["offset"])
    except json.JSONDecodeError:
        return int(literal_eval(offset)["offset"])


def lag(
    path: str | os.PathLike[str], offset: str | Mapping[str, Any], *, until: str | None = None
) -> StreamLag:
    """How far a query that has come to ``offset`` is behind the store in ``path``.

    :param offset: as Spark shows it, or what that means
    :param until: as the query has it
    """
    reached = place_of(offset)
    with lakelog.open(Path(path), mode="read") as store, Landmarks.of(store) as log:
        end = end_of(log, until)
        if reached >= end:
            return StreamLag(0, 0, 0.0)
        units = sum(each.first_from(end) - each.first_from(reached) for each in log.queues)
        oldest = log.message(max(reached, store.min_offset))
        waited = 0.0 if oldest is None else time.time() - oldest.store_timestamp_ms / 1000
        return StreamLag(end - reached, units, max(0.0, waited))
