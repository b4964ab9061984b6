"""Options of ``df.write.format("lakelog")``; unknown options are refused."""

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
from lakelog_lake.reading.options import PATH, SOURCE, ReadOptions, nearest, refused, switch

CHECKPOINT: Final = "checkpointlocation"
"""An option of the query that Spark also passes to a sink; upper and lower case are equal."""
_METADATA: Final = "metadata"


def query_id(location: str | None) -> str:
    """Read Spark's id of a query from its checkpoint at ``location``.

    Raises :class:`~lakelog.errors.SettingsError` if it cannot be read.
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
        f"{why}; give option checkpointLocation, a local folder, or name the query "
        "with option job_id, and change that name whenever its checkpoint is new",
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
"""Every option with its default."""
_JOB: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


@attrs.frozen
class WriteOptions:
    """The checked options of a write.

    :ivar path: the store directory, absolute; executors need it under the same path
    :ivar create: whether to create a store that does not exist
    :ivar settings: path of a settings file for the store, besides its own
    :ivar job: id of the job: its rows are appended once, also if the write is repeated
    :ivar named: whether a user gave that id
    :ivar ignore_position_columns: whether to ignore columns that only the store can fill
    :ivar decompress: whether the bodies of rows are decompressed, for any ``sys_flag``
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
        """As :meth:`of`, for a stream; also return the location of its checkpoint."""
        checkpoint = next((given[key] for key in given if key.lower() == CHECKPOINT), None)
        return cls.of({key: given[key] for key in given if key.lower() != CHECKPOINT}), checkpoint

    @classmethod
    def of(cls, given: Mapping[str, str]) -> WriteOptions:
        """Check the options given to Spark; raises :class:`~lakelog.errors.SettingsError`."""
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
                f"{place.archive} is not a directory: mount it, under one path on all executors",
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
    """Return ``job`` if it is a valid folder name.

    Raises :class:`~lakelog.errors.SettingsError`.
    """
    if not _JOB.fullmatch(job):
        raise refused(
            "job_id", f"{job!r} cannot name a folder; give up to 100 letters, digits, '_-.'"
        )
    return job
