"""What ``df.write.format("lakelog")`` can be told; anything else is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import attrs

from lakelog.errors import SettingsError, UnknownSetting
from lakelog_lake.reading.options import PATH, ReadOptions
from lakelog_lake.reading.values import SOURCE, nearest, refused, switch

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


DEFAULTS: Final[dict[str, str | None]] = {
    PATH: None,
    "create": "false",
    "settings": None,
    "job_id": None,
    "ignore_position_columns": "false",
    "decompress": "true",
}
"""Every option, and what it is where it is not given."""
_JOB: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


@attrs.frozen
class WriteOptions:
    """Options of a write, checked.

    :ivar path: the store directory, absolute; executors see it under the same name
    :ivar create: whether a store is made where none is
    :ivar settings: a file of settings to open the store with, beside its own
    :ivar job: names the rows: what was appended under it is not appended again
    :ivar named: whether somebody gave that name
    :ivar ignore_position_columns: whether columns that only the store can fill are passed over
    :ivar decompress: whether bodies are as their senders gave them, whatever ``sys_flag`` says
    """

    path: Path
    create: bool
    settings: str | None
    job: str
    named: bool
    ignore_position_columns: bool
    decompress: bool

    @classmethod
    def of_stream(cls, given: Mapping[str, str]) -> tuple[WriteOptions, str | None]:
        """The same for a stream, and where its checkpoint is."""
        checkpoint = next((given[key] for key in given if key.lower() == CHECKPOINT), None)
        return cls.of({key: given[key] for key in given if key.lower() != CHECKPOINT}), checkpoint

    @classmethod
    def of(cls, given: Mapping[str, str]) -> WriteOptions:
        """Check what Spark was given; raises :class:`~lakelog.errors.SettingsError`."""
        for key in given:
            if key not in DEFAULTS:
                hint = nearest(key, DEFAULTS)
                raise UnknownSetting(f"no such option; {hint}", key=key, source=SOURCE)
        if not given.get(PATH):
            raise refused(PATH, "name a store directory: .save('STORE')")
        option = {**DEFAULTS, **given}
        job = option["job_id"]
        place = ReadOptions.of({PATH: given[PATH]})
        if place.archive is not None:
            raise refused(
                PATH,
                f"{place.archive} is no directory: mount it, under the same path on every executor",
            )
        return cls(
            path=place.path,
            create=switch("create", str(option["create"])),
            settings=option["settings"] or None,
            job=str(uuid4()) if job is None else checked_job(job),
            named=job is not None,
            ignore_position_columns=switch(
                "ignore_position_columns", str(option["ignore_position_columns"])
            ),
            decompress=switch("decompress", str(option["decompress"])),
        )


def checked_job(job: str) -> str:
    """A job's id, which names a folder."""
    if not _JOB.fullmatch(job):
        raise refused(
            "job_id", f"{job!r} cannot name a folder; give up to 100 letters, digits, '_-.'"
        )
    return job
