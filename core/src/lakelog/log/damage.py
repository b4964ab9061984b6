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

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog.errors import CorruptRecord
from lakelog.files.filesystem import FileSystem
from lakelog.files.identity import read_own, write_own
from lakelog.format.record_batch import Damage
from lakelog.log.sources import Source, read_at
from lakelog.log.store_directory import StoreDirectory

DAMAGE_FILE: Final = "damage.json"
_NOT_READ: Final = "noted earlier, and not read this time"


def read_damage(files: FileSystem, path: Path) -> tuple[Damage, ...]:
    """The damage listed in the store directory ``path``; empty if the list is not readable."""
    return read_own(files, path, DAMAGE_FILE, _parse) or ()


def _parse(found: Any) -> tuple[Damage, ...]:
    return tuple(
        Damage(
            int(row["offset"]),
            int(row["end_offset"]),
            CorruptRecord(str(row["what"]), offset=int(row["offset"])),
            unproven=bool(row["unproven"]),
            head=bytes.fromhex(row["head"]),
            to_fill=bool(row.get("to_fill")),
        )
        for row in found["damage"]
    )


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
        self._damage = source.known_damage.values()

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
        return damage.is_at(read_at(self._source, damage.offset, len(damage.head)))
