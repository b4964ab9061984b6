"""Checks whether messages can land in an existing table, for all kinds of tables alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from lakelog_lake.errors import TableMismatch
from lakelog_lake.tables.partitions import keys_text

KEY: Final = ("store", "topic", "queue_id", "queue_offset", "physical_offset")
"""Columns that a table must have; missing others are added."""


@attrs.frozen
class Kinds:
    """The types of a table's columns, as texts of one kind of table.

    :ivar types: types by column name
    :ivar required: columns that must not be null
    """

    types: Mapping[str, str]
    required: frozenset[str] = frozenset()


def _never(_column: str) -> bool:
    """The default of ``grows``: no column can change its type."""
    return False


def missing(
    name: str, found: Kinds, ours: Kinds, grows: Callable[[str], bool] = _never
) -> list[str]:
    """Return the columns to add; raises ``TableMismatch`` if the table cannot take the rows.

    :param found: the columns of the table
    :param ours: the columns of the rows
    :param grows: returns whether a column of another type accepts our type, or can be changed to
    """
    wrong = [
        f"{each} is {found.types[each]}, not {kind}"
        for each, kind in ours.types.items()
        if found.types.get(each, kind) != kind and not grows(each)
    ]
    wrong += [f"{each} must not be null" for each in sorted(found.required - set(ours.types))]
    lacks = [each for each in ours.types if each not in found.types]
    wrong += [f"{each} is missing" for each in KEY if each in lacks]
    if wrong:
        raise TableMismatch(
            f"{name} has other columns than lakelog's: {'; '.join(wrong)}: land in a new table"
        )
    return lacks


def check_partition(name: str, found: Sequence[str], ours: Sequence[str]) -> None:
    """Raise ``TableMismatch`` unless a table is partitioned as requested."""
    if tuple(found) != tuple(ours):
        raise TableMismatch(
            f"{name} has other partitions than requested: it is partitioned by "
            f"{keys_text(found)}, not by {keys_text(ours)}: give that as --partition, or land in a "
            "new table"
        )


def check_topic(name: str, found: str | None, ours: str | None) -> None:
    """Raise ``TableMismatch`` unless a table is marked with the expected topic."""
    if found != ours:
        holds = "all topics" if found is None else f"the topic {found!r}"
        raise TableMismatch(
            f"{name} holds the messages of {holds}, not those of "
            f"{'all topics' if ours is None else repr(ours)}: give another --table"
        )
