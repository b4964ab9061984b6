"""Which streaming query writes: the id that Spark keeps in its checkpoint.

A query that is started again from its checkpoint has the same id, and goes on with its batches; one
with a new checkpoint begins at batch 0 again, and has another id.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from lakelog.errors import SettingsError

CHECKPOINT: Final = "checkpointlocation"
"""Spark hands a sink all options of the query, this one among them, by names of any case."""
_METADATA: Final = "metadata"


def query_id(location: str | None) -> str:
    """The id of the query whose checkpoint is at ``location``, which Spark has made by then.

    Raises :class:`~lakelog.errors.SettingsError` where it cannot be told.
    """
    if not location:
        raise _refused("the query has no checkpoint")
    parts = urlsplit(location)
    if parts.scheme not in ("", "file"):
        raise _refused(f"the checkpoint is at {location}, which this process cannot read")
    metadata = Path(unquote(parts.path) if parts.scheme else location) / _METADATA
    try:
        return str(json.loads(metadata.read_text())["id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _refused(f"{metadata}: expected Spark's id of the query, found {error!r}") from error


def _refused(why: str) -> SettingsError:
    return SettingsError(
        f"{why}; give option checkpointLocation, a folder of this machine, or name the query "
        "yourself by option job_id, by another name whenever its checkpoint is a new one",
        key="job_id",
    )
