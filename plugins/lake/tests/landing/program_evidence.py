"""What a kill hit, by what it left in the folder of a table, and by what the table says.

- ``inside`` the commit: metadata that is part of no version, or not under its name
- ``after`` it: one more version; data files of the pass behind it may be left over
- ``before`` it: data files that are in no version, and nothing else
- ``early``: nothing at all
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

import attrs

from plugins.lake.tests.landing.passes import sink_for
from plugins.lake.tests.landing.tables import TABLE, commits, files

PHASES = ("before", "inside", "after")


@attrs.frozen
class Evidence:
    """:ivar data: files of rows in no version; :ivar metadata: likewise what commits write."""

    commits: int
    data: frozenset[Path]
    metadata: frozenset[Path]


def look(kind: str, path: Path) -> Evidence:
    """What is there now; nobody else may be at it."""
    known = set(files(kind, path))
    folder = (path / "lakelog" / "messages" if kind == "iceberg" else path) / "data"
    data = frozenset(each for each in folder.rglob("*.parquet*") if each not in known)
    return Evidence(commits(kind, path), data, frozenset(_METADATA[kind](path)))


def hit(before: Evidence, after: Evidence) -> str:
    """What happened between two looks."""
    if after.metadata - before.metadata:
        return "inside"
    if after.commits > before.commits:
        return "after"
    return "before" if after.data - before.data else "early"


def has_new_metadata(kind: str, path: Path, before: Evidence) -> bool:
    """Whether a commit is written and not under its name yet, or under its own name, too."""
    return not _METADATA[kind](path) <= before.metadata


def landed_to(kind: str, path: Path) -> int:
    """The place in the log that the newest version says all before has landed; 0 without any."""
    position = sink_for(f"{kind}:{path}").head("S").position
    return 0 if position is None else position.end


def _of_parquet(path: Path) -> set[Path]:
    return set((path / "_lakelog").glob("*.tmp"))


def _of_delta(path: Path) -> set[Path]:
    return {each for each in (path / "_delta_log").iterdir() if "#" in each.name}


def _of_iceberg(path: Path) -> set[Path]:
    """All of the folder ``metadata`` that the newest version does not name."""
    from lakelog_lake.sinks.iceberg import sqlite_catalog

    table = sqlite_catalog(path).load_table(TABLE)
    named = {table.metadata_location, *(each.metadata_file for each in table.metadata.metadata_log)}
    for each in table.metadata.snapshots:
        named |= {each.manifest_list, *(it.manifest_path for it in each.manifests(table.io))}
    known = {Path(unquote(urlsplit(each).path)) for each in named}
    known |= {each.with_name(f".{each.name}.crc") for each in known}  # of Java's classes
    folder = path / "lakelog" / "messages" / "metadata"
    return {each for each in folder.iterdir() if each not in known}


_METADATA = {"parquet": _of_parquet, "delta": _of_delta, "iceberg": _of_iceberg}
