"""Reads segments that lakelog-archive has moved away, without the store directory.

``spark.read.format("lakelog").load("s3://bucket/old/UUID")`` reads the folder of a store in its
archive. Each segment in the archive's manifest is one partition, as no record crosses the end of a
segment. Tasks fetch ranges of the segment. Executors need lakelog-archive and fsspec's package for
the URL (such as ``s3fs``), configured by fsspec's own settings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import attrs
from pyspark.sql.datasource import DataSourceReader, InputPartition

import lakelog
from lakelog.errors import NotAStore, SettingsError, StoreError
from lakelog.format.layout import COMMITLOG_DIR, OWN_DIR, STORE_FILE
from lakelog_lake.errors import OffsetUnavailable, OtherStore
from lakelog_lake.reading.options import LATEST, SKIP, ReadOptions
from lakelog_lake.reading.plan import LogRange
from lakelog_lake.reading.rows import rows_in
from lakelog_spark.sessions.shipping import clear_importer_cache

if TYPE_CHECKING:
    import pyarrow as pa

_MANIFEST: Final = "manifest"
_NAME_DIGITS: Final = 20


@attrs.frozen
class Archived:
    """The archive folder of one store.

    :ivar url: URL of the folder
    :ivar segment_size_bytes: length of each segment
    :ivar starts: physical start offsets of all segments, ascending
    """

    url: str
    segment_size_bytes: int
    starts: tuple[int, ...]

    @property
    def uuid(self) -> str:
        """The UUID of the store."""
        return self.url.rpartition("/")[2]

    @classmethod
    def at(cls, url: str) -> Archived:
        """Read the manifest.

        Raises :class:`~lakelog.errors.NotAStore` if the folder has no archived segment,
        :class:`~lakelog.errors.StoreError` if it cannot be read, and
        :class:`~lakelog.errors.SettingsError` for a URL that fsspec cannot open.
        """
        folder = url.rstrip("/")
        try:
            names, first = _manifest(folder)
        except (ImportError, ValueError) as error:
            raise SettingsError(f"{url!r} cannot be read: {error}", key="path") from error
        except OSError as error:
            raise StoreError(f"{url} cannot be read: {error}") from error
        if not names:
            raise NotAStore(f"{url} is not a folder of a store written by lakelog-archive")
        return cls(folder, int(first["size"]), tuple(map(int, names)))

    @contextmanager
    def opened(self) -> Iterator[lakelog.Store]:
        """Open a temporary store with this identity, whose log has only the archived segments."""
        with TemporaryDirectory(prefix="lakelog-archived-") as folder:
            path = Path(folder)
            (path / COMMITLOG_DIR).mkdir()
            (path / OWN_DIR).mkdir()
            identity = {"version": 1, "uuid": self.uuid, "created_by_lakelog": True}
            (path / OWN_DIR / STORE_FILE).write_text(json.dumps(identity))
            with lakelog.open(
                path,
                mode="read",
                segment_size_bytes=self.segment_size_bytes,
                archive="fsspec",
                fsspec={"url": self.url.rpartition("/")[0]},
            ) as store:
                yield store


def _manifest(folder: str) -> tuple[list[str], Any]:
    """The names of the archived segments, and the manifest's entry of the first one."""
    import fsspec  # type: ignore[import-untyped]  # it has no types

    fs, path = fsspec.core.url_to_fs(f"{folder}/{_MANIFEST}")
    fs.invalidate_cache(path)
    try:
        found = [each.rstrip("/").rpartition("/")[2] for each in fs.ls(path, detail=False)]
    except FileNotFoundError:
        return [], None
    names = sorted(each for each in found if len(each) == _NAME_DIGITS and each.isdigit())
    return names, json.loads(fs.cat_file(f"{path}/{names[0]}")) if names else None


class ArchivedReader(DataSourceReader):
    """Reads the segments that were archived when the reader was made."""

    def __init__(self, options: ReadOptions, url: str) -> None:
        if options.start.word == LATEST:
            raise SettingsError("start=latest is for streaming queries", key="start")
        self._options = options
        self._archived = found = Archived.at(url)
        self._name = options.store_id or found.uuid
        start, first = options.start, found.starts[0]
        if start.store not in (None, self._name):
            raise OtherStore(url, str(start.store), self._name)
        if start.offset is not None and start.offset < first and options.lost != SKIP:
            end = found.starts[-1] + found.segment_size_bytes
            raise OffsetUnavailable(url, start.offset, first, end)

    def partitions(self) -> list[InputPartition]:
        """One partition per segment; segments without any wanted record are left out."""
        size, wanted = self._archived.segment_size_bytes, self._options.wanted
        return [
            InputPartition(LogRange(start, start + size))
            for start in self._archived.starts
            if start < wanted.physical.end and start + size > wanted.physical.low
        ]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one segment."""
        if partition is not None:
            clear_importer_cache()
            with self._archived.opened() as store:
                yield from rows_in(store, self._options, self._name, partition.value)
