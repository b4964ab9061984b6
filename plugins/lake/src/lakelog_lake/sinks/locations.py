"""Where tables are, ``KIND:PLACE`` such as ``iceberg:/data/lake``, and the names of tables there.

A package adds a kind of table by an entry point of the group ``lakelog_lake.formats``: its name is
the kind, and its object takes PLACE and the ``--storage`` options and returns a
:class:`TableLocation`.

A name may contain ``{topic}``, for one table per topic. In the name of such a table, letters,
digits, ``-`` and ``_`` stand for themselves. All other characters, and ambiguous ones, are written
as ``_xHH_`` with the code point in hexadecimal. Ambiguous are a ``_`` before an ``x``, a ``_`` or
``-`` at the beginning, and the ``d`` of a final ``dead_letters``, which ends the names of tables of
dead letters. A name that would be too long is cut and gets a hash of the topic; then only the
table's own mark has the topic.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

import attrs

from lakelog.errors import SettingsError
from lakelog_lake.errors import NeedsEngine
from lakelog_lake.sinks import iceberg
from lakelog_lake.sinks.base import MANIFESTS, Sink
from lakelog_lake.sinks.delta import DeltaSink, is_there, remote_folder
from lakelog_lake.sinks.parquet import ParquetSink
from lakelog_lake.tables.remote import DeltaFiles, Folder, Remote
from lakelog_lake.tables.shape import TableShape

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from lakelog_lake.verify.landed_table import LandedTable

FORMATS: Final = "lakelog_lake.formats"
"""The entry point group of kinds of tables."""
DEFAULT_TABLE: Final = "lakelog.messages"
_SOURCE: Final = "--to"


class TableLocation:
    """A location of tables of one kind, each with a name; the base of each kind's class.

    :ivar kind: the name of the kind, such as ``delta``
    :ivar names_are_paths: whether the name of a table is its folder, which so names the location
    """

    kind: ClassVar[str]
    names_are_paths: ClassVar[bool] = False

    @property
    def text(self) -> str:
        """The location as ``KIND:PLACE``, with an absolute path."""
        raise NotImplementedError

    def table(self, given: str | None) -> str:
        """The name of the table, or a template; raises :class:`~lakelog.errors.SettingsError`.

        :param given: the name that the user gave, if any
        """
        raise NotImplementedError

    def sink(self, name: str, shape: TableShape) -> Sink:
        """The sink of a table, which may not exist yet."""
        raise NotImplementedError

    def beside(self, name: str) -> list[str]:
        """The last part of the names of all tables in the location of the table ``name``."""
        raise NotImplementedError

    def there(self, name: str) -> str | None:
        """The table ``name`` if it exists, or any table of a template; ``None`` without one."""
        found = self.beside(name)
        if is_template(name):
            return next(iter(found), None)
        return name if re.split(r"[./]", name)[-1] in found else None

    def topics(self, template: str) -> Iterator[str]:
        """The topics of the tables that are marked with one; other tables there are left out."""
        before, _, behind = re.split(r"[./]", template)[-1].partition(TOPIC)
        for last in self.beside(template):
            inner = last[len(before) : len(last) - len(behind)]
            if f"{before}{inner}{behind}" != last or not (_CUT.fullmatch(inner) or decoded(inner)):
                continue
            name = template.replace(TOPIC, inner)
            topic = self.sink(name, TableShape()).marked()
            if topic is not None and named(template, topic) == name:
                yield topic

    def dead_letters(self, name: str, given: str | None) -> str:
        """The name, or template, of the table of dead letters for the table ``name``.

        :param given: the name that the user gave, if any

        Raises :class:`~lakelog.errors.SettingsError`.
        """
        if given is None:
            return name + DEAD_LETTERS
        text = given.removeprefix(f"{self.kind}:")
        dead = str(folder_of(text)) if self.names_are_paths else text
        if is_template(dead) is not is_template(name) or dead == name:
            raise SettingsError(
                f"{given!r} must be another table, and contain {{topic}} exactly if the name of "
                "the tables of messages does",
                key="--dead-letters",
            )
        return dead

    def shown(self, name: str) -> str:
        """The name of a table in messages, before the table exists."""
        return name if self.names_are_paths else f"{self.text}, table {name},"

    def why_not_there(self, name: str) -> str | None:  # noqa: ARG002  # most kinds ask the table
        """The reason why the table ``name`` cannot exist, or ``None`` to try and read it."""
        return None

    def rows(self, name: str) -> LandedTable:
        """The table ``name`` for ``lake verify``, ``status`` and ``rewind``."""
        raise NeedsEngine(f"{self.text}, table {name}, can be read and maintained by its own tools")


Format: TypeAlias = "Callable[[str, Mapping[str, str]], TableLocation]"
"""Makes the location from PLACE and the options of ``--storage``; raises
:class:`~lakelog.errors.SettingsError`.
"""


def location_of(to: str, storage: Mapping[str, str] | None = None) -> TableLocation:
    """Parse ``KIND:PLACE``; raises :class:`~lakelog.errors.SettingsError`.

    :param storage: options of the object store, or properties of the catalog
    """
    kind, colon, place = to.partition(":")
    others = entry_points(group=FORMATS)
    if not colon or not place or kind not in {*_OWN, *others.names}:
        known = ", ".join((*_OWN, *sorted(others.names)))
        raise SettingsError(f"{to!r} is not KIND:PATH with one of {known}", key=_SOURCE)
    package = _PACKAGES.get(kind)
    if package is not None and find_spec(package) is None:
        raise SettingsError(
            f"{kind} needs {package}, which is not installed: pip install 'lakelog[lakehouse]'",
            key=_SOURCE,
        )
    make: Format = _OWN[kind] if kind in _OWN else others[kind].load()
    return make(place, storage or {})


@attrs.frozen(slots=False)
class IcebergLocation(TableLocation):
    """The tables of one catalog; each has a name, ``NAMESPACE.TABLE``.

    :ivar path: the warehouse; ``None`` if the catalog defines it
    :ivar catalog_name: the catalog's name in pyiceberg's configuration; ``None`` for the SQLite
        file in the warehouse
    :ivar storage: properties of the catalog
    """

    kind: ClassVar[str] = "iceberg"
    path: Path | str | None
    catalog_name: str | None = None
    storage: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    @property
    def text(self) -> str:
        """``iceberg:WAREHOUSE`` or ``catalog:NAME``."""
        return f"catalog:{self.catalog_name}" if self.path is None else f"iceberg:{self.path}"

    def table(self, given: str | None) -> str:
        """See :class:`TableLocation`."""
        name = given or DEFAULT_TABLE
        if "." not in name.strip("."):
            raise SettingsError(f"{name!r} is not NAMESPACE.TABLE", key="--table")
        return name

    def sink(self, name: str, shape: TableShape) -> iceberg.IcebergSink:
        """See :class:`TableLocation`."""
        warehouse = self.path if isinstance(self.path, str) else None
        within = self.path if isinstance(self.path, Path) else None
        return iceberg.IcebergSink(self._catalog, name, shape, warehouse, within)

    def beside(self, name: str) -> list[str]:
        """See :class:`TableLocation`."""
        from pyiceberg.exceptions import NoSuchNamespaceError

        try:
            found = self._catalog.list_tables(name.rpartition(".")[0])
        except NoSuchNamespaceError:
            return []
        return sorted(each[-1] for each in found)

    def there(self, name: str) -> str | None:
        """See :class:`TableLocation`; a local warehouse counts if it has any file."""
        return _filled(self.path) if isinstance(self.path, Path) else super().there(name)

    def why_not_there(self, name: str) -> str | None:  # noqa: ARG002  # the catalog has the names
        """See :class:`TableLocation`; a configured catalog is only asked when a table is read."""
        if self.catalog_name is not None:
            return None
        return _without(Path(str(self.path)), iceberg.CATALOG_FILE, self.kind)

    @cached_property
    def _catalog(self) -> Catalog:
        if self.catalog_name is None:
            return iceberg.sqlite_catalog(Path(str(self.path)))
        return iceberg.configured_catalog(self.catalog_name, self.storage)


@attrs.frozen(slots=False)
class FolderLocation(TableLocation):
    """Tables in folders; the name of a table is its path.

    :ivar path: the folder, or a template
    :ivar storage: options of the object store
    """

    names_are_paths: ClassVar[bool] = True
    path: Path | str
    storage: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    @property
    def text(self) -> str:
        """``KIND:PATH`` or ``KIND:URI``."""
        return f"{self.kind}:{self.path}"

    def table(self, given: str | None) -> str:
        """See :class:`TableLocation`."""
        if given is not None:
            raise SettingsError(
                f"a {self.kind} table has no name besides its folder", key="--table"
            )
        return str(self.path)

    def folder(self, name: str) -> Folder:
        """The folder of the table ``name``."""
        return Path(name) if isinstance(self.path, Path) else remote_folder(name, self.storage)

    def beside(self, name: str) -> list[str]:
        """See :class:`TableLocation`."""
        folder = self.folder(name.rpartition("/")[0])
        if isinstance(folder, Remote):
            return folder.files.names() if isinstance(folder.files, DeltaFiles) else []
        return sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []

    def there(self, name: str) -> str | None:
        """See :class:`TableLocation`; a local folder counts if it has any file."""
        if not isinstance(self.path, Path):
            return super().there(name)
        return _filled(self.path.parent if is_template(name) else self.path)


class DeltaLocation(FolderLocation):
    """Delta tables in a local folder or an object store."""

    kind: ClassVar[str] = "delta"

    def sink(self, name: str, shape: TableShape) -> DeltaSink:
        """See :class:`TableLocation`."""
        return DeltaSink(self.folder(name), shape)

    def why_not_there(self, name: str) -> str | None:
        """See :class:`TableLocation`."""
        folder = self.folder(name)
        if isinstance(folder, Remote):
            return None if is_there(folder) else f"there is no Delta table at {folder}"
        return _without(folder, "_delta_log", self.kind)


class ParquetLocation(FolderLocation):
    """Parquet tables in a local folder."""

    kind: ClassVar[str] = "parquet"

    def sink(self, name: str, shape: TableShape) -> ParquetSink:
        """See :class:`TableLocation`."""
        return ParquetSink(Path(name), shape)

    def why_not_there(self, name: str) -> str | None:
        """See :class:`TableLocation`."""
        return _without(Path(name), MANIFESTS, self.kind)


def _filled(folder: Path) -> str | None:
    return str(folder) if folder.is_dir() and any(folder.iterdir()) else None


def _without(folder: Path, mark: str, kind: str) -> str | None:
    """The reason why ``folder``, which should have the file ``mark``, has no table."""
    if not folder.exists():
        return f"there is no folder {folder}"
    if not (folder / mark).exists():
        return f"{folder} has no {mark}, so it is not the folder of a {kind} table"
    return None


def _iceberg(place: str, storage: Mapping[str, str]) -> TableLocation:
    path = _folder_without_options(place, storage)
    if isinstance(path, Path):
        return IcebergLocation(path)
    return IcebergLocation(path, iceberg.default_catalog(), storage)


def _catalog(place: str, storage: Mapping[str, str]) -> TableLocation:
    return IcebergLocation(None, place, storage)


def _delta(place: str, storage: Mapping[str, str]) -> TableLocation:
    return DeltaLocation(_folder_without_options(place, storage), storage)


def _parquet(place: str, storage: Mapping[str, str]) -> TableLocation:
    path = _folder_without_options(place, storage)
    if not isinstance(path, Path):
        raise SettingsError(
            f"{f'parquet:{place}'!r}: a Parquet table must be in a local or mounted folder; for an "
            f"object store use delta:{path}, or Iceberg by catalog:NAME",
            key=_SOURCE,
        )
    return ParquetLocation(path)


_OWN: Final[dict[str, Format]] = {
    "iceberg": _iceberg,
    "delta": _delta,
    "parquet": _parquet,
    "catalog": _catalog,
}
_PACKAGES: Final = {"iceberg": "pyiceberg", "delta": "deltalake", "catalog": "pyiceberg"}


def _folder_without_options(place: str, storage: Mapping[str, str]) -> Path | str:
    """As :func:`folder_of`; options are for other file systems."""
    path = folder_of(place)
    if storage and isinstance(path, Path):
        raise SettingsError(f"{path} is a local folder: it takes no options", key="--storage")
    return path


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
