"""Computes the lag of a streaming query, which a Python source cannot report in Spark 4.1.

The argument is the ``endOffset`` of a query's progress, or of a listener's event::

    lag("STORE", query.lastProgress["sources"][0]["endOffset"])
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
from lakelog_lake.log.extent import RecordStarts, end_of


@attrs.frozen
class StreamLag:
    """The messages that a query has not read yet.

    :ivar bytes: bytes of the log from the query's position to the end
    :ivar messages: number of these messages, as far as queues have units for them
    :ivar seconds: time since the store time of the oldest one; 0 without any
    """

    bytes: int
    messages: int
    seconds: float


def place_of(offset: str | Mapping[str, Any]) -> int:
    """The physical offset, in bytes, in the offset of a query.

    PySpark's progress has offsets as the text of Python dicts; elsewhere they are JSON. Raises
    ``ValueError``, ``SyntaxError``, ``KeyError`` and ``TypeError`` for other values.
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
    """The lag of a query at ``offset`` behind the store in ``path``.

    :param offset: the query's offset, as text or parsed
    :param until: the value of the option ``until`` of the query

    Raises as :func:`place_of`, and the errors of opening a store.
    """
    reached = place_of(offset)
    with lakelog.open(Path(path), mode="read") as store, RecordStarts.of(store) as log:
        end = end_of(log, until)
        if reached >= end:
            return StreamLag(0, 0, 0.0)
        units = sum(each.first_from(end) - each.first_from(reached) for each in log.queues)
        oldest = log.message(max(reached, store.min_offset))
        waited = 0.0 if oldest is None else time.time() - oldest.store_timestamp_ms / 1000
        return StreamLag(end - reached, units, max(0.0, waited))
