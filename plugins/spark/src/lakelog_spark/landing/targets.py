"""Says which table a text such as ``iceberg:/data/lake`` means, and who a store is in it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

from lakelog.errors import SettingsError
from lakelog_spark.landing.sinks.base import Sink
from lakelog_spark.rows import store_name

KINDS: Final = ("iceberg", "delta", "parquet")
DEFAULT_TABLE: Final = "lakelog.messages"
_NEEDS: Final = {"iceberg": "pyiceberg", "delta": "deltalake"}
_SOURCE: Final = "--to"


def sink_for(to: str, table: str | None = None) -> Sink:
    """The table ``KIND:PATH``.

    :param table: of Iceberg, its name in the catalog, ``NAMESPACE.TABLE``

    Raises :class:`~lakelog.errors.SettingsError`.
    """
    kind, colon, place = to.partition(":")
    if not colon or not place or kind not in KINDS:
        raise SettingsError(f"{to!r} is not KIND:PATH with one of {', '.join(KINDS)}", key=_SOURCE)
    path = Path(place.removeprefix("//")).absolute()
    if table is not None and kind != "iceberg":
        raise SettingsError(f"a {kind} table has no name: its folder is it", key="--table")
    _check_installed(kind)
    if kind == "parquet":
        from lakelog_spark.landing.sinks.parquet import ParquetSink

        return ParquetSink(path)
    if kind == "delta":
        from lakelog_spark.landing.sinks.delta import DeltaSink

        return DeltaSink(path)
    return _iceberg(path, table or DEFAULT_TABLE)


def _iceberg(path: Path, table: str) -> Sink:
    from lakelog_spark.landing.sinks.iceberg import IcebergSink, sqlite_catalog

    if "." not in table.strip("."):
        raise SettingsError(f"{table!r} is not NAMESPACE.TABLE", key="--table")
    return IcebergSink(sqlite_catalog(path), table)


def _check_installed(kind: str) -> None:
    needed = _NEEDS.get(kind)
    if needed is not None and find_spec(needed) is None:
        raise SettingsError(
            f"{kind} needs {needed}, which is not installed: pip install lakelog-spark[{kind}]",
            key=_SOURCE,
        )


def identity_of(path: Path, store_id: str | None) -> str:
    """Who the store in ``path`` is: what is given, else its UUID, else the name of its folder.

    Two folders of one name are told apart by what they hold: the second one is refused.
    """
    return store_id or store_name(path)
