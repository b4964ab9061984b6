"""``lakelog/damage.json``: ranges of the log that are not whole records, and stay in it.

``{"damage": [{"offset": N, "end_offset": N, "what": TEXT, "unproven": BOOL, "head": HEX,
"to_fill": BOOL}]}``; see ``Damage``. Readers skip these ranges without checking them again. A
recovery that reads a part of the log replaces the entries of that part and keeps the others.

A scan skips known damage. But a queue unit, an index entry or a saved offset may point into it,
where old, whole records can be that do not belong to the log. Reads of single records find such
damage by :class:`KnownDamage`. As in a scan, an entry counts only while the damaged bytes are
unchanged.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog.errors import CorruptRecord
from lakelog.files.filesystem import FileSystem, read_file
from lakelog.files.identity import write_own
from lakelog.format.layout import OWN_DIR
from lakelog.format.record_batch import Damage
from lakelog.log.sources import Source
from lakelog.log.store_directory import StoreDirectory

DAMAGE_FILE: Final = "damage.json"
_NOT_READ: Final = "noted earlier, and not read this time"
_LOG: Final = logging.getLogger("lakelog")


def read_damage(files: FileSystem, path: Path) -> tuple[Damage, ...]:
    """The damage listed in the store directory ``path``; empty if the list is not readable."""
    content = read_file(files, path / OWN_DIR / DAMAGE_FILE)
    if content is None:
        return ()
    try:
        return tuple(_parse(json.loads(content)["damage"]))
    except (ValueError, KeyError, TypeError) as error:
        _LOG.warning("%s is damaged and was ignored: %s", DAMAGE_FILE, error)
        return ()


def _parse(rows: Iterable[dict[str, Any]]) -> Iterator[Damage]:
    for row in rows:
        offset = int(row["offset"])
        error = CorruptRecord(str(row["what"]), offset=offset)
        unproven, head = bool(row["unproven"]), bytes.fromhex(row["head"])
        to_fill = bool(row.get("to_fill"))
        yield Damage(offset, int(row["end_offset"]), error, None, unproven, head, to_fill)


def noted_before(
    directory: StoreDirectory, size_bytes: int, minimum: int, start: int
) -> tuple[Damage, ...]:
    """Listed damage of a log that begins at ``minimum``, limited to entries before ``start``."""
    return tuple(
        attrs.evolve(
            each,
            error=CorruptRecord(f"{each.error.what}; {_NOT_READ}", offset=each.offset),
            path=directory.segment(each.offset - each.offset % size_bytes),
        )
        for each in read_damage(directory.files, directory.path)
        if minimum < each.end_offset and each.offset < start
    )


def keep_damage(
    files: FileSystem, path: Path, start: int, minimum: int, found: Iterable[Damage]
) -> None:
    """Replace the entries from ``start`` on, durably; an unchanged list is not written.

    Entries before ``minimum``, the first byte of the log, are dropped. Raises ``OSError``.
    """
    before = read_damage(files, path)
    known_damage = [each for each in before if minimum < each.end_offset and each.offset < start]
    known_damage += found
    if [_row(each) for each in known_damage] == [_row(each) for each in before]:
        return
    write_own(files, path, DAMAGE_FILE, {"damage": [_row(each) for each in known_damage]}, indent=1)


def _row(damage: Damage) -> dict[str, Any]:
    return {
        "offset": damage.offset,
        "end_offset": damage.end_offset,
        "what": damage.error.what,
        "unproven": damage.unproven,
        "head": damage.head.hex(),
        "to_fill": damage.to_fill,
    }


class KnownDamage:
    """The known damage of one source; false if there is none."""

    __slots__ = ("_damage", "_source")

    def __init__(self, source: Source) -> None:
        self._source = source
        self._damage = source.known_damage().values()

    def __bool__(self) -> bool:
        return bool(self._damage)

    def at(self, offset: int, *, verify: bool = True) -> Damage | None:
        """The damage that contains ``offset``, if any.

        :param verify: whether checksums are computed; without them, damaged records look whole
        """
        for each in self._damage:
            if each.offset <= offset < each.end_offset and (each.unproven or not verify):
                return each if self._stands(each) else None
        return None

    def rest(self, offset: int, *, verify: bool) -> Damage | None:
        """The part from ``offset`` on of the damage that contains it; ``None`` if there is none.

        Also ``None`` for damage that begins at ``offset``, since a scan from there finds it.
        """
        found = self.at(offset, verify=verify)
        return attrs.evolve(found, offset=offset) if found and found.offset < offset else None

    def _stands(self, damage: Damage) -> bool:
        """Whether the damaged bytes are unchanged."""
        for extent in self._source.extents(damage.offset):  # open as long as the loop runs
            if extent.start <= damage.offset < extent.end:
                return damage.is_at(extent.read(damage.offset, len(damage.head)))
            break
        return False
