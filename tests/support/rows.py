"""JSON lines that describe a store: one object per line, each with its `kind`."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Row = dict[str, Any]


def parse(text: str) -> list[Row]:
    """Parse lines of JSON."""
    return [json.loads(line) for line in text.splitlines()]


def by_kind(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Group rows, in their order; a kind that does not occur has no rows."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["kind"]].append(row)
    return groups


def difference(got: Sequence[Row], expected: Sequence[Row]) -> str:
    """Describe the first row that differs, field by field; empty if all are equal."""
    for number, (ours, theirs) in enumerate(zip(got, expected, strict=False)):
        if ours != theirs:
            names = [name for name in ours | theirs if ours.get(name) != theirs.get(name)]
            fields = [f"{name}: {ours.get(name)!r} not {theirs.get(name)!r}" for name in names]
            return f"row {number} ({theirs['kind']}): " + "; ".join(fields)
    return "" if len(got) == len(expected) else f"{len(got)} rows, not {len(expected)}"
