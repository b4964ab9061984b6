"""The columns that rows may have; told of when the query is planned, before any task runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Final

from lakelog.errors import SettingsError

_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
_TEXT: Final = ("string",)
ACCEPTED: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": _TEXT,
    "body": ("binary", "string"),
    "queue_id": _WHOLE,
    "tags": _TEXT,
    "keys": ("array<string>", "string"),
    "properties": ("map<string,string>",),
    "unique_key": _TEXT,
    "born_timestamp": ("timestamp", "timestamp_ntz", "bigint"),
    "born_host": _TEXT,
    "flag": _WHOLE,
    "sys_flag": _WHOLE,
    "reconsume_times": _WHOLE,
}
"""Spark's types that each may have."""
REQUIRED: Final = ("topic", "body")
BY_STORE: Final = (
    "store", "queue_offset", "physical_offset", "store_size", "message_id", "body_crc",
    "transaction_type", "store_timestamp", "store_host", "prepared_transaction_offset",
)  # fmt: skip  # a list of names
"""Columns of a read that follow from the place of a record, or from other columns."""


def check(fields: Sequence[tuple[str, str]], *, ignore_position_columns: bool) -> None:
    """Refuse rows with such columns.

    :param fields: names and Spark's types

    Raises :class:`~lakelog.errors.SettingsError`, which names all that is wrong of one sort.
    """
    names = [name for name, _ in fields]
    _refuse("a column is there twice", [name for name, n in Counter(names).items() if n > 1])
    _refuse(
        "no message has such a column",
        [_hinted(name) for name in names if name not in ACCEPTED and name not in BY_STORE],
        f"; leave it out, or make it one of {', '.join(ACCEPTED)}",
    )
    _refuse("a column is missing", [name for name in REQUIRED if name not in names])
    if not ignore_position_columns:
        _refuse(
            "these columns are for the store to fill",
            [name for name in names if name in BY_STORE],
            "; to copy what was read from a store, give option ignore_position_columns=true: "
            "messages get new places and store times",
        )
    wrong = [
        f"{name} is {kind} and must be {' or '.join(ACCEPTED[name])}"
        for name, kind in fields
        if name in ACCEPTED and kind not in ACCEPTED[name] and kind != "void"
    ]
    _refuse("a column has the wrong type", wrong)
    void = [name for name, kind in fields if kind == "void" and name in REQUIRED]
    _refuse("a column has no values at all", void)


def _hinted(name: str) -> str:
    close = get_close_matches(name.lower(), ACCEPTED, 1)
    return f"{name} (did you mean {close[0]}?)" if close else name


def _refuse(what: str, found: Sequence[str], hint: str = "") -> None:
    if found:
        raise SettingsError(f"{what}: {', '.join(found)}{hint}", key="columns")
