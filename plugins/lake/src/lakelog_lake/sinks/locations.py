"""Resolves the locations of tables: ``iceberg:/data/lake``, ``catalog:NAME`` and the like.

Encodes topics as names of tables and folders, and decodes them.

Letters, digits, ``-`` and ``_`` stand for themselves. All other characters, and ambiguous ones, are
written as ``_xHH_`` with the code point in hexadecimal. Ambiguous are a ``_`` before an ``x``, a
``_`` or ``-`` at the beginning, and the ``d`` of a final ``dead_letters``, which ends the names of
tables of dead letters. A name that would be too long is cut and gets a hash of the topic; then only
the table's own mark has the topic.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from lakelog.errors import SettingsError
from lakelog_lake.sinks.base import Markable
from lakelog_lake.tables.remote import DeltaFiles, Folder, Remote
from lakelog_lake.tables.shape import TableShape

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

KINDS: Final = ("iceberg", "delta", "parquet", "catalog")

DEFAULT_TABLE: Final = "lakelog.messages"

_NEEDS: Final = {"iceberg": "pyiceberg", "catalog": "pyiceberg", "delta": "deltalake"}

_SOURCE: Final = "--to"

_STORAGE: Final = "--storage"


class Destination(Protocol):
    """A location of tables of one kind, each with a name.

    :ivar kind: ``iceberg``, ``delta`` or ``parquet``
    """

    @property
    def kind(self) -> str:
        """The kind of all its tables."""

    @property
    def text(self) -> str:
        """The location as text."""

    def table(self, given: str | None) -> str:
        """The name of the table, or a template; raises :class:`~lakelog.errors.SettingsError`."""

    def sink(self, name: str, shape: TableShape) -> Markable:
        """The sink of a table, which may not exist yet."""

    def beside(self, name: str) -> list[str]:
        """The last part of the names of all tables in the location of the table ``name``."""


@attrs.frozen(slots=False)
class TableLocation:
    """A location of tables of one kind; the name of a table in folders is its path.

    :ivar kind: ``iceberg``, ``delta`` or ``parquet``
    :ivar path: for Iceberg the warehouse; ``None`` if the catalog defines it
    :ivar catalog: name of a catalog in pyiceberg's configuration; ``None`` for the SQLite file in
        the warehouse
    :ivar storage: options of the object store, or properties of the catalog
    """

    kind: str
    path: Path | str | None
    catalog: str | None = None
    storage: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    @property
    def text(self) -> str:
        """The location as ``KIND:PATH``, with the absolute path."""
        return f"catalog:{self.catalog}" if self.path is None else f"{self.kind}:{self.path}"

    @classmethod
    def of(cls, to: str, storage: Mapping[str, str] | None = None) -> TableLocation:
        """Parse ``KIND:PATH``; raises :class:`~lakelog.errors.SettingsError`."""
        kind, colon, place = to.partition(":")
        if not colon or not place or kind not in KINDS:
            known = ", ".join(KINDS)
            raise SettingsError(f"{to!r} is not KIND:PATH with one of {known}", key=_SOURCE)
        needed = _NEEDS.get(kind)
        if needed is not None and find_spec(needed) is None:
            raise SettingsError(
                f"{kind} needs {needed}, which is not installed: pip install 'lakelog[lakehouse]'",
                key=_SOURCE,
            )
        if kind == "catalog":
            return cls("iceberg", None, place, storage or {})
        path = folder_of(place)
        if isinstance(path, Path):
            if storage:
                raise SettingsError(f"{path} is a local folder: it takes no options", key=_STORAGE)
            return cls(kind, path)
        if kind == "parquet":
            raise SettingsError(
                f"{to!r}: a Parquet table must be in a local or mounted folder; for an object "
                f"store use delta:{path}, or Iceberg by catalog:NAME",
                key=_SOURCE,
            )
        if kind == "delta":
            return cls(kind, path, None, storage or {})
        from lakelog_lake.sinks.iceberg import default_catalog

        return cls(kind, path, default_catalog(), storage or {})

    def table(self, given: str | None) -> str:
        """The name of the table, or a template; raises :class:`~lakelog.errors.SettingsError`."""
        if self.kind != "iceberg":
            if given is not None:
                raise SettingsError(
                    f"a {self.kind} table has no name besides its folder", key="--table"
                )
            return str(self.path)
        name = given or DEFAULT_TABLE
        if "." not in name.strip("."):
            raise SettingsError(f"{name!r} is not NAMESPACE.TABLE", key="--table")
        return name

    def sink(self, name: str, shape: TableShape) -> Markable:
        """The sink of a table, which may not exist yet."""
        if self.kind == "parquet":
            from lakelog_lake.sinks.parquet import ParquetSink

            return ParquetSink(Path(name), shape)
        if self.kind == "delta":
            from lakelog_lake.sinks.delta import DeltaSink

            return DeltaSink(self.folder(name), shape)
        from lakelog_lake.sinks.iceberg import IcebergSink

        warehouse = self.path if isinstance(self.path, str) else None
        return IcebergSink(self._catalog, name, shape, warehouse)

    def folder(self, name: str) -> Folder:
        """The folder of the table ``name``; not for Iceberg."""
        if isinstance(self.path, Path):
            return Path(name)
        from lakelog_lake.sinks.delta import remote_folder

        return remote_folder(name, self.storage)

    def beside(self, name: str) -> list[str]:
        """The last part of the names of all tables in the location of the table ``name``."""
        if self.kind != "iceberg":
            return self._names(self.folder(name.rpartition("/")[0]))
        from pyiceberg.exceptions import NoSuchNamespaceError

        try:
            found = self._catalog.list_tables(name.rpartition(".")[0])
        except NoSuchNamespaceError:
            return []
        return sorted(each[-1] for each in found)

    @staticmethod
    def _names(folder: Folder) -> list[str]:
        if isinstance(folder, Remote):
            return folder.files.names() if isinstance(folder.files, DeltaFiles) else []
        return sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []

    def why_not_there(self, name: str) -> str | None:
        """The reason why the table ``name`` cannot exist, or ``None``.

        A configured catalog is not asked here, but when the table is read.
        """
        from lakelog_lake.sinks.delta import is_there
        from lakelog_lake.sinks.iceberg import CATALOG_FILE
        from lakelog_lake.sinks.parquet import MANIFESTS

        if self.catalog is not None:
            return None
        folder = self.path if self.kind == "iceberg" else self.folder(name)
        if isinstance(folder, Remote):
            return None if is_there(folder) else f"there is no Delta table at {folder}"
        mark = {"iceberg": CATALOG_FILE, "delta": "_delta_log", "parquet": MANIFESTS}[self.kind]
        path = Path(str(folder))
        if not path.exists():
            return f"there is no folder {path}"
        if not (path / mark).exists():
            return f"{path} has no {mark}, so it is not the folder of a {self.kind} table"
        return None

    @cached_property
    def _catalog(self) -> Catalog:
        if self.catalog is None:
            from lakelog_lake.sinks.iceberg import sqlite_catalog

            return sqlite_catalog(Path(str(self.path)))
        from lakelog_lake.sinks.iceberg import configured_catalog

        return configured_catalog(self.catalog, self.storage)


def folder_of(text: str) -> Path | str:
    """Return a local path (also for a ``file:`` URI), or the URI of another file system unchanged.

    Expands ``~``, which a shell does not expand behind a colon.
    """
    path = text.removeprefix("file:")
    if "://" in path:
        scheme, _, rest = path.partition("://")
        if path != text or not scheme.isalnum() or not rest.strip("/"):
            raise SettingsError(
                f"{text!r} is not a folder: give a path, or a URI such as s3://BUCKET/FOLDER",
                key=_SOURCE,
            )
        return path.rstrip("/")
    return Path(path.removeprefix("//")).expanduser().absolute()


TOPIC: Final = "{topic}"

DEAD_LETTERS: Final = "_dead_letters"

_ESCAPED: Final = re.compile(rf"[^A-Za-z0-9_-]|^[_-]|_(?=x)|d(?={DEAD_LETTERS[2:]}$)", re.ASCII)

_MOST: Final = 200

_ESCAPE: Final = re.compile(r"_x([0-9A-F]+)_")

_PIECE: Final = re.compile(r"_x[0-9A-F]+_|.")

_HASH_LENGTH: Final = 16

_CUT: Final = re.compile(rf"[A-Za-z0-9_-]+_xsha[0-9a-f]{{{_HASH_LENGTH}}}", re.ASCII)
"""Separates the hash; not part of any encoded topic, as an ``s`` never follows ``_x``."""


def encoded(topic: str) -> str:
    """The encoded name of ``topic``.

    >>> encoded("orders"), encoded("%RETRY%a"), encoded("a.b"), encoded("a_x25_")
    ('orders', '_x25_RETRY_x25_a', 'a_x2E_b', 'a_x5F_x25_')
    """
    return _ESCAPED.sub(lambda found: f"_x{ord(found[0]):02X}_", topic)


def decoded(name: str) -> str | None:
    """The topic encoded as ``name``; ``None`` if ``name`` is not an encoded topic.

    >>> decoded("_x25_RETRY_x25_a"), decoded("a_dead_letters"), decoded("a b")
    ('%RETRY%a', None, None)
    """
    topic = _ESCAPE.sub(lambda found: chr(min(int(found[1], 16), 0x10FFFF)), name)
    return topic if topic and encoded(topic) == name else None


def is_template(text: str) -> bool:
    """Whether ``text`` contains ``{topic}``.

    Raises :class:`~lakelog.errors.SettingsError` if it is not in the last part, or there twice.
    """
    if TOPIC not in text:
        return False
    if text.count(TOPIC) > 1 or TOPIC not in re.split(r"[./]", text)[-1]:
        raise SettingsError(f"{text!r} must contain {TOPIC} once, in its last part", key="--table")
    return True


def named(template: str, topic: str) -> str:
    """The table of a topic; the part for the topic has at most 200 characters."""
    name = encoded(topic)
    return template.replace(TOPIC, name if len(name) <= _MOST else _cut(name, topic))


def _cut(name: str, topic: str) -> str:
    """The longest part of ``name`` that fits before a hash; escapes are not split."""
    digest = hashlib.sha256(topic.encode(errors="surrogatepass")).hexdigest()[:_HASH_LENGTH]
    mark = f"_xsha{digest}"
    short = ""
    for piece in _PIECE.findall(name):
        if len(short) + len(piece) + len(mark) > _MOST:
            break
        short += piece
    return short + mark


def topics_beside(
    template: str, names: Iterable[str], marked: Callable[[str], str | None]
) -> Iterator[str]:
    """The topics with tables under ``template``; tables that lakelog did not mark are left out.

    :param names: the last part of the name of each existing table
    :param marked: returns the topic with which a table, given by its full name, is marked
    """
    before, _, behind = re.split(r"[./]", template)[-1].partition(TOPIC)
    for last in names:
        inner = last[len(before) : len(last) - len(behind)]
        if f"{before}{inner}{behind}" != last or not _may_be_a_topics(inner):
            continue
        name = template.replace(TOPIC, inner)
        topic = marked(name)
        if topic is not None and named(template, topic) == name:
            yield topic


def _may_be_a_topics(name: str) -> bool:
    return _CUT.fullmatch(name) is not None or decoded(name) is not None
