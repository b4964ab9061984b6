"""Makes the copy of a local warehouse one of its own.

Paths in Iceberg's metadata are absolute: those of a copied folder lead into the original, which a
commit to the copy would change. So before messages land in a table of a copy, its metadata are
written once more with the paths of the copy: manifests, manifest lists, and the metadata file, to
which the catalog of the copy points last. No file of the original is touched, and none of the copy
is changed or removed. After a kill before the last step the copy is as it was.

A folder is a copy if the original is still there and has another catalog. Otherwise it was moved,
or is reached by another path, which other programs do not know: those are refused, see
:class:`~lakelog_lake.errors.TableElsewhere`. So is a table with delete files, as there are paths
inside of them.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import attrs
from pyiceberg.exceptions import ValidationError
from pyiceberg.io import load_file_io
from pyiceberg.manifest import (
    ManifestContent,
    ManifestEntryStatus,
    ManifestFile,
    read_manifest_list,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.serializers import FromInputFile, ToOutputFile
from pyiceberg.table.metadata import TableMetadataUtil

from lakelog_lake.errors import NotWritten, TableElsewhere
from lakelog_lake.tables.remote import is_local, local_folder

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

_POINTER: Final = (
    "SELECT metadata_location FROM iceberg_tables "
    "WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?"
)
_MOVE: Final = (
    "UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = NULL "
    "WHERE catalog_name = ? AND table_namespace = ? AND table_name = ? AND metadata_location = ?"
)
_BUSY_SECONDS: Final = 60.0
_AVRO: Final = "deflate"
_NUMBER: Final = re.compile(r"^\d+")
_PATH: Final = 0
_LENGTH: Final = 1
_FILE_PATH: Final = 1
"""Places of fields in pyiceberg's records of manifests and data files."""


@attrs.frozen
class WarehouseCopy:
    """A table in the copy of a warehouse, whose metadata still have the original's paths.

    :ivar folder: the copy
    :ivar catalog: its catalog, a SQLite file
    :ivar row: names of the catalog, the namespace and the table
    :ivar original: the folder of the original
    :ivar pointer: the original's metadata file
    :ivar made: the URIs of the files that were written
    """

    folder: Path
    catalog: Path
    row: tuple[str, str, str]
    original: Path
    pointer: str
    io: FileIO
    made: list[str] = attrs.field(factory=list)

    @classmethod
    def found(cls, catalog: Path, name: str, table: str, properties: Any) -> WarehouseCopy | None:
        """The table, if ``catalog`` is that of a copy whose original is still there.

        :param name: the name of the catalog
        :param properties: those of FileIO
        """
        space, _, last = table.rpartition(".")
        row = (name, space, last)
        with closing(sqlite3.connect(catalog, timeout=_BUSY_SECONDS)) as db:
            pointer = next(iter(db.execute(_POINTER, row).fetchone() or ()), None)
        if pointer is None or not is_local(pointer):
            return None
        folder, there = catalog.absolute().parent, local_folder(pointer)
        if there.resolve().is_relative_to(folder.resolve()):
            return None
        for depth in range(1, len(there.parts)):
            original = Path(*there.parts[:depth])
            beside = original / catalog.name
            if folder.joinpath(*there.parts[depth:]).is_file() and beside.is_file():
                if beside.samefile(catalog):
                    return None  # the same folder, by another path
                io = load_file_io(properties, pointer)
                return cls(folder, catalog, row, original, pointer, io)
        return None

    def metadata(self) -> TableMetadata:
        """The metadata of the copy, with the original's paths."""
        return FromInputFile.table_metadata(self.io.new_input(self._moved(self.pointer)))

    def adopt(self) -> None:
        """Give the table the paths of the copy.

        Raises ``TableElsewhere`` if the copy is not whole, or names files of the original elsewhere
        than in its metadata, and ``NotWritten`` if the metadata cannot be written.
        """
        is_adopted = False
        try:
            target = self._written(self.metadata())
            with closing(sqlite3.connect(self.catalog, timeout=_BUSY_SECONDS)) as db, db:
                is_adopted = db.execute(_MOVE, (target, *self.row, self.pointer)).rowcount > 0
        except (FileNotFoundError, ValueError, ValidationError) as error:
            table = f"the Iceberg table {'.'.join(self.row[1:])}"
            raise TableElsewhere(table, self.folder, f"{self.original} ({error})") from error
        except (OSError, sqlite3.Error) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise NotWritten(self.folder, why, "the metadata of the table") from error
        finally:
            for each in () if is_adopted else self.made:
                local_folder(each).unlink(missing_ok=True)

    def _written(self, metadata: TableMetadata) -> str:
        """Write all metadata with the paths of the copy; return the URI of the metadata file."""
        known: dict[str, ManifestFile] = {}
        lists = {e.snapshot_id: self._list_of(e, metadata, known) for e in metadata.snapshots}
        changed = self._rewritten(json.loads(metadata.model_dump_json(exclude_none=True)))
        for each in changed.get("snapshots", ()):
            each["manifest-list"] = lists[each["snapshot-id"]]
        number = _NUMBER.match(self.pointer.rpartition("/")[2])
        target = self._new(f"{'00000' if number is None else number[0]}-", ".metadata.json")
        made = TableMetadataUtil.parse_raw(json.dumps(changed))
        ToOutputFile.table_metadata(made, self.io.new_output(target))
        return target

    def _moved(self, uri: str) -> str:
        """The path of the copy for one of the original."""
        for prefix in (f"file://{self.original}/", f"file:{self.original}/", f"{self.original}/"):
            if uri.startswith(prefix):
                return f"file://{self.folder}/{uri.removeprefix(prefix)}"
        raise ValueError(f"{uri} is outside of it")

    def _rewritten(self, value: Any) -> Any:
        """The metadata as JSON, with each path of the original moved."""
        if isinstance(value, dict):
            return {key: self._rewritten(it) for key, it in value.items()}
        if isinstance(value, list):
            return [self._rewritten(each) for each in value]
        is_path = isinstance(value, str) and value.startswith(("file:", f"{self.original}/"))
        return self._moved(value) if is_path else value

    def _new(self, prefix: str, suffix: str) -> str:
        """The URI of a new file beside the metadata file."""
        self.made.append(
            f"{self._moved(self.pointer).rpartition('/')[0]}/{prefix}{uuid4()}{suffix}"
        )
        return self.made[-1]

    def _list_of(
        self, snapshot: Snapshot, metadata: TableMetadata, known: dict[str, ManifestFile]
    ) -> str:
        """Write the manifest list of a snapshot; return its URI."""
        found = list(read_manifest_list(self.io.new_input(self._moved(snapshot.manifest_list))))
        for each in found:
            if each.manifest_path not in known:
                known[each.manifest_path] = self._manifest(each, metadata)
        target = self._new(f"snap-{snapshot.snapshot_id}-", ".avro")
        with write_manifest_list(
            metadata.format_version,
            self.io.new_output(target),
            snapshot.snapshot_id,
            snapshot.parent_snapshot_id,
            snapshot.sequence_number,
            _AVRO,
        ) as writer:
            writer.add_manifests([known[each.manifest_path] for each in found])
        return target

    def _manifest(self, manifest: ManifestFile, metadata: TableMetadata) -> ManifestFile:
        """Write a manifest; its data files must be in the copy."""
        if manifest.content != ManifestContent.DATA:
            raise ValueError("it has delete files, which name files of the original")
        values = [manifest[place] for place in range(len(manifest))]
        read, made = ManifestFile(*values), ManifestFile(*values)
        read[_PATH] = self._moved(manifest.manifest_path)
        entries = read.fetch_manifest_entry(self.io, discard_deleted=False)
        for entry in entries:
            path = entry.data_file[_FILE_PATH] = self._moved(entry.data_file.file_path)
            if entry.status != ManifestEntryStatus.DELETED and not local_folder(path).exists():
                raise FileNotFoundError(f"the copy has no {path}")
        spec = metadata.specs()[manifest.partition_spec_id]
        ids = [each.source_id for each in spec.fields]
        schema = next((e for e in _schemas(metadata) if _has(e, ids)), metadata.schema())
        output = self.io.new_output(self._new("", "-m0.avro"))
        with write_manifest(
            metadata.format_version, spec, schema, output, manifest.added_snapshot_id or 0, _AVRO
        ) as writer:
            for entry in entries:
                writer.add_entry(entry)
        made[_PATH], made[_LENGTH] = output.location, writer.to_manifest_file().manifest_length
        return made


def _schemas(metadata: TableMetadata) -> Iterator[Schema]:
    yield metadata.schema()
    yield from reversed(metadata.schemas)


def _has(schema: Schema, ids: list[int]) -> bool:
    return all(schema.find_column_name(each) is not None for each in ids)
