"""Parquet files, and a manifest that says which of them are the table.

``PATH/data`` has the files, ``PATH/_lakelog`` the manifests: ``N.json`` for each commit, N with 20
digits, from 0 on. One is written under another name, synced, and then linked to its own, which
fails if somebody has made that version already. Its members::

    version    1, of this format
    files      the table's files, if ``whole``; else those that this commit adds. Each has path
               (below PATH), size_bytes, rows, topic, day
    whole      whether ``files`` is everything up to this version; every WHOLE_EVERY-th is
    positions  {store: position} of all stores, see landing.position

A file in ``data`` that no manifest names belongs to no table: its writer was killed, or lost.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import attrs

from lakelog_spark.columns import NAMES
from lakelog_spark.landing.errors import Conflict, TableMismatch
from lakelog_spark.landing.facts import FileFacts, day_text
from lakelog_spark.landing.position import Position, from_text, to_text
from lakelog_spark.landing.sinks.base import Head
from lakelog_spark.landing.tablefields import DAY, Layout

DATA: Final = "data"
MANIFESTS: Final = "_lakelog"
WHOLE_EVERY: Final = 64
_FORMAT: Final = 1
_LAYOUT: Final = Layout((*NAMES, DAY))


@attrs.frozen
class ParquetSink:
    """:ivar path: the table's folder."""

    path: Path
    layout: Layout = _LAYOUT

    @property
    def name(self) -> str:
        """The folder."""
        return f"the Parquet table {self.path}"

    @property
    def folder(self) -> Path:
        """Of the data files."""
        return self.path / DATA

    def prepare(self) -> None:
        """Make the folders; an empty table has no manifest."""
        if self.path.is_dir() and not self._manifests.is_dir() and any(self.path.iterdir()):
            raise TableMismatch(f"{self.path} holds something else: give an empty or new folder")
        for folder in (self._manifests, self.folder):
            folder.mkdir(parents=True, exist_ok=True)
        _sync(self.path)

    def head(self, store: str) -> Head:
        """Read the newest manifest."""
        newest = self._newest()
        if newest < 0:
            return Head(None, (-1, {}))
        positions = self._read(newest)["positions"]
        text = positions.get(store)
        return Head(None if text is None else from_text(text), (newest, positions))

    def commit(
        self, head: Head, store: str, files: Sequence[FileFacts], position: Position
    ) -> None:
        """Link the next manifest into place."""
        version, positions = head.version
        added = [self._entry(each) for each in files]
        whole = (version + 1) % WHOLE_EVERY == 0
        content = {
            "version": _FORMAT,
            "whole": whole,
            "files": self._entries(version) + added if whole else added,
            "positions": {**positions, store: to_text(position)},
        }
        self._publish(version + 1, content)

    def files(self) -> list[dict[str, Any]]:
        """The files of the newest version; each as its manifest has it."""
        return self._entries(self._newest())

    def paths(self) -> list[Path]:
        """Where they are."""
        return [self.path / each["path"] for each in self.files()]

    @property
    def _manifests(self) -> Path:
        return self.path / MANIFESTS

    def _newest(self) -> int:
        """The newest version; -1 without any."""
        names = (path.stem for path in self._manifests.glob("*.json"))
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def _at(self, version: int) -> Path:
        return self._manifests / f"{version:020d}.json"

    def _read(self, version: int) -> Mapping[str, Any]:
        path = self._at(version)
        try:
            content = json.loads(path.read_text())
            if content["version"] != _FORMAT:
                raise ValueError(f"version {content['version']}; this lakelog knows {_FORMAT}")
            return dict(content)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TableMismatch(f"{path} is no manifest of lakelog: {error}") from None

    def _entries(self, version: int) -> list[dict[str, Any]]:
        """All files up to ``version``."""
        parts: list[list[dict[str, Any]]] = []
        while version >= 0:
            content = self._read(version)
            parts.append(content["files"])
            if content["whole"]:
                break
            version -= 1
        return [each for part in reversed(parts) for each in part]

    def _entry(self, facts: FileFacts) -> dict[str, Any]:
        return {
            "path": os.path.relpath(facts.path, self.path),
            "size_bytes": facts.size_bytes,
            "rows": facts.rows,
            "topic": facts.topic,
            DAY: day_text(facts.day),
        }

    def _publish(self, version: int, content: Mapping[str, Any]) -> None:
        temporary = self._manifests / f"{uuid4().hex}.tmp"
        with temporary.open("x") as file:
            json.dump(content, file, ensure_ascii=False, separators=(",", ":"))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, self._at(version))
        except FileExistsError:
            raise Conflict(f"version {version} of {self.name} is somebody else's") from None
        finally:
            temporary.unlink()
        _sync(self._manifests)


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
