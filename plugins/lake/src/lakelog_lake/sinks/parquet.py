"""A table of Parquet files, with manifests that list its files.

``PATH/data`` has the files, ``PATH/_lakelog`` the manifests: ``N.json`` for each commit, N with 20
digits, from 0 on. A manifest is written under a temporary name, synced, and then linked to its
final name, which fails if another writer has made that version already. Its members::

    version    1, of this format
    files      if ``whole``, all files of the table; else those that this commit adds. Each has
               path (below PATH), size_bytes, rows, and the values of its partition by their keys
    whole      whether ``files`` lists the whole table; true in every WHOLE_EVERY-th
    positions  {store: position} of all stores, see tables.position
    columns    {name: Arrow type} of the table; older files may lack some of them
    partition  the partition keys
    topic      the only topic of the table; null if it has all topics

A data file that the newest version does not list has a hidden name, see
:mod:`lakelog_lake.tables.data_files`. So any reader of the folder reads exactly the table.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, ClassVar, Final, TypeAlias
from uuid import uuid4

import attrs
import pyarrow as pa
from pyarrow import parquet

from lakelog_lake.errors import Conflict, TableMismatch
from lakelog_lake.sinks.base import (
    MANIFESTS,
    FolderTable,
    Head,
    Kinds,
    check_partition,
    check_place,
    check_topic,
    missing,
)
from lakelog_lake.tables import data_files, shape
from lakelog_lake.tables.position import Position, PositionedVersion, from_text, to_text
from lakelog_lake.tables.remote import sync
from lakelog_lake.tables.settings import Resume

WHOLE_EVERY: Final = 64
Version: TypeAlias = "tuple[int, Mapping[str, Any]]"
"""The number of a version, and its manifest."""
_FORMAT: Final = 1
_TRIES: Final = 3


@attrs.frozen
class ParquetSink(FolderTable[Path]):
    """A sink of Parquet files and their manifests."""

    kind: ClassVar[str] = "Parquet"

    @property
    def layout(self) -> shape.Layout:
        """Partition columns are stored in the files as well."""
        own = self.shape
        form = (own.partition, own.topic)
        return shape.Layout(own.stored(), own.partition, is_hidden=True, form=form)

    def prepare(self) -> None:
        """Create the folders; an empty table gets a manifest only if it is for one topic."""
        if not self.manifests.is_dir():
            check_place(self.name, self.path, MANIFESTS)
            if self.path.is_dir() and any(self.path.iterdir()):
                raise TableMismatch(f"{self.path} holds other files: give an empty or new folder")
        for folder in (self.manifests, self.folder):
            folder.mkdir(parents=True, exist_ok=True)
        sync(self.path)
        sync(self.path.parent)
        if self._newest() < 0 and self.shape.topic is not None:
            with suppress(Conflict):
                self._publish(0, {**self._described({}), "files": [], "positions": {}})
        self._check()
        self._show(self._newest(), is_all=True)

    def _check(self) -> None:
        found = self._latest()
        if found:
            missing(self.name, Kinds(found["columns"]), Kinds(self._columns()), self._grows)
            check_partition(self.name, found["partition"], self.shape.partition)
            check_topic(self.name, found["topic"], self.shape.topic)

    def _grows(self, column: str) -> bool:
        """Readers of a folder can merge structs, but not int and bigint."""
        known, ours = self.schema(), self.shape.stored()
        return column in known.names and shape.fits(
            known.field(column).type, ours.field(column).type, widens=False
        )

    def schema(self) -> pa.Schema:
        """The schema of all files together; empty without files."""
        schemas = {parquet.read_schema(file).remove_metadata() for file in self.open_files()}
        found = list(schemas)
        return pa.unify_schemas(found, promote_options="permissive") if found else pa.schema([])

    def marked(self) -> str | None:
        """The only topic of the table; ``None`` if it has all topics or does not exist."""
        topic = self._latest().get("topic")
        return None if topic is None else str(topic)

    def _columns(self) -> dict[str, str]:
        return {each.name: str(each.type) for each in self.shape.stored()}

    def _described(self, before: Mapping[str, Any]) -> dict[str, Any]:
        """The table's description in a manifest; keeps columns that only the table has."""
        columns = {**before.get("columns", {}), **self._columns()}
        return {
            "version": _FORMAT,
            "whole": False,
            "columns": columns,
            "partition": self.shape.partition,
            "topic": self.shape.topic,
        }

    def head(self, store: str, resume: Resume | None = None) -> Head:  # noqa: ARG002  # it is known
        """Read the newest manifest, and make its files visible."""
        version = self.newest()
        found = version[1]
        text = found["positions"].get(store)
        form = self.layout.form
        if "partition" in found:
            form = (tuple(found["partition"]), found["topic"])
        position = None if text is None else from_text(text)
        return Head(position, version, form, _Manifests(self), found["positions"])

    def position(self, store: str) -> Position | None:
        """The position of ``store``; changes nothing."""
        text = self.texts().get(store)
        return None if text is None else from_text(text)

    def texts(self) -> Mapping[str, str]:
        """The texts of the positions of all stores; changes nothing."""
        return dict(self._latest().get("positions", {}))

    def positions(self, version: int) -> Mapping[str, str]:
        """The texts of the positions in one manifest, by store."""
        return dict(self._read(version)["positions"])

    def newest(self) -> Version:
        """The newest version, with its files made visible."""
        newest = self._newest()
        self._show(newest)
        return newest, self._read(newest) if newest >= 0 else {"positions": {}}

    def _show(self, version: int, *, is_all: bool = False) -> None:
        """Make the files of ``version``, or of a newer one, visible."""
        while version >= 0:
            content = self._read(version)
            if is_all or content["whole"]:
                seen = data_files.seen_in(self.folder)
                changed = data_files.only(seen, self._paths(self.entries(self._newest())))
            else:
                changed = data_files.shown(self._paths(content["files"]))
            if changed:
                sync(self.folder)
            if changed and self._newest() != version:
                version, is_all = self._newest(), True
            else:
                return

    def commit(
        self, head: Head, store: str, files: Sequence[data_files.FileFacts], position: Position
    ) -> None:
        """Link the next manifest to its name."""
        version, before = head.version
        added = [self._entry(each) for each in files]
        whole = (version + 1) % WHOLE_EVERY == 0
        content = {
            **self._described(before),
            "whole": whole,
            "files": self.entries(version) + added if whole else added,
            "positions": {**before["positions"], store: to_text(position)},
        }
        self._publish(version + 1, content)

    def replace(
        self, version: Version, entries: Sequence[Mapping[str, Any]], moved: Mapping[str, str]
    ) -> None:
        """Publish a version with other files.

        :param version: the version that this one replaces
        :param entries: all files of the new version
        :param moved: positions that change, by store

        Raises :class:`~lakelog_lake.errors.Conflict`.
        """
        number, before = version
        positions = {**before["positions"], **moved}
        content = {**before, "whole": True, "files": list(entries), "positions": positions}
        self._publish(number + 1, content)

    def whole_before(self, number: int) -> int:
        """The newest version up to ``number`` whose manifest lists all files."""
        while number > 0 and not self._read(number)["whole"]:
            number -= 1
        return number

    def named_by(self, number: int) -> Iterator[Path]:
        """The files of one manifest, each under its visible and its hidden name."""
        for path in self._paths(self._read(number)["files"]):
            yield from (path, data_files.hidden(path))

    def files(self) -> list[dict[str, Any]]:
        """The entries of all files of the newest version."""
        return self.entries(self._newest())

    def versions(self) -> list[int]:
        """The numbers of the manifests kept, ascending."""
        names = (path.stem for path in self.manifests.glob("*.json"))
        return sorted(int(name) for name in names if name.isdigit())

    def history(
        self, most: int
    ) -> Iterator[tuple[int, dict[str, str], list[dict[str, Any]], bool]]:
        """Yield the time in ms since 1970, positions and files of each recent manifest.

        The last member is whether the files are all files of the table. The first manifest always
        has all files, so that callers can compute the files added by the next one.

        :param most: largest number of manifests
        """
        newest = self._newest()
        first = max(0, newest - most + 1)
        while first < newest and not self.manifest(first).exists():
            first += 1
        for version in range(first, newest + 1):
            read = self._read(version)
            entries = self.entries(version) if version == first else read["files"]
            at_ms = self.manifest(version).stat().st_mtime_ns // 1_000_000
            yield at_ms, read["positions"], entries, version == first or read["whole"]

    def paths(self) -> list[Path]:
        """The paths of the data files of the newest version."""
        return [data_files.found(path) for path in self._paths(self.files())]

    def _paths(self, entries: Iterable[Mapping[str, Any]]) -> list[Path]:
        return [self.path / each["path"] for each in entries]

    def open_files(self) -> Iterator[IO[bytes]]:
        """Open each file of the newest version in turn, also if it is renamed meanwhile."""
        for path in self._paths(self.files()):
            for _ in range(_TRIES):
                with suppress(FileNotFoundError), data_files.found(path).open("rb") as file:
                    yield file
                    break
            else:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))

    @property
    def manifests(self) -> Path:
        """The folder of the manifests."""
        return self.path / MANIFESTS

    def _newest(self) -> int:
        """The newest version; -1 if there is none."""
        return max(self.versions(), default=-1)

    def _latest(self) -> Mapping[str, Any]:
        """The newest manifest; empty if there is none."""
        newest = self._newest()
        return self._read(newest) if newest >= 0 else {}

    def manifest(self, version: int) -> Path:
        """The manifest of a version."""
        return self.manifests / f"{version:020d}.json"

    def _read(self, version: int) -> Mapping[str, Any]:
        path = self.manifest(version)
        try:
            content = json.loads(path.read_text())
            if content["version"] != _FORMAT:
                raise ValueError(f"version {content['version']}, but lakelog reads {_FORMAT}")
            return dict(content)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TableMismatch(f"{path} is not a manifest of lakelog: {error}") from None

    def entries(self, version: int) -> list[dict[str, Any]]:
        """The entries of all files as of ``version``."""
        parts: list[list[dict[str, Any]]] = []
        while version >= 0:
            content = self._read(version)
            parts.append(content["files"])
            if content["whole"]:
                break
            version -= 1
        return [each for part in reversed(parts) for each in part]

    def _entry(self, facts: data_files.FileFacts) -> dict[str, Any]:
        return {
            "path": self.within(data_files.named(facts.path)),
            "size_bytes": facts.size_bytes,
            "rows": facts.rows,
            **{name: shape.as_text(name, value) for name, value in facts.partition.items()},
        }

    def _publish(self, version: int, content: Mapping[str, Any]) -> None:
        temporary = self.manifests / f"{uuid4().hex}.tmp"
        with temporary.open("x") as file:
            json.dump(content, file, ensure_ascii=False, separators=(",", ":"))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, self.manifest(version))
        except FileExistsError:
            raise Conflict(f"version {version} of {self.name} was made by another writer") from None
        finally:
            temporary.unlink()
        sync(self.manifests)
        self._show(version)


@attrs.define
class _Manifests:
    """The history of a table; see :class:`~lakelog_lake.tables.position.TableHistory`."""

    table: ParquetSink
    _oldest: int = -1

    def commits(self) -> Iterator[PositionedVersion]:
        for version in reversed(self.table.versions()):
            self._oldest = version
            yield PositionedVersion(self.table.positions(version))

    def begins(self) -> bool:
        return self._oldest == 0

    def is_straight(self) -> bool:
        return True
