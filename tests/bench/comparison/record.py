"""What was found, by part and store: the file that the page is made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, TypeAlias

FILE: Final = Path(__file__).with_name("found.json")
Record: TypeAlias = dict[str, Any]
"""``machine``, ``versions`` by store, and for each part ``{"date", "stores": {name: what}}``."""


def load() -> Record:
    """The record of the last run; empty if there was none."""
    found: Record = json.loads(FILE.read_text()) if FILE.exists() else {}
    return found


def save(record: Record) -> None:
    """Keep it."""
    FILE.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
