"""The results by part and store, in the file from which the page is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, TypeAlias

FILE: Final = Path(__file__).with_name("found.json")
Record: TypeAlias = dict[str, Any]
"""``machine``; ``versions`` by store; ``{"date", "load", "stores": {name: what}}`` by part."""


def load() -> Record:
    """Return the record of the last run; empty without one."""
    found: Record = json.loads(FILE.read_text()) if FILE.exists() else {}
    return found


def keep(found: Record) -> None:
    """Add new results to the record; those of other parts and stores stay."""
    FILE.write_text(json.dumps(_merged(load(), found), indent=1, sort_keys=True) + "\n")


def _merged(old: Record, new: Record) -> Record:
    """Return the results of a run, and the former ones of other parts and stores."""
    depth = {
        name: {**old.get(name, {}), **value} for name, value in new.items() if name != "figures"
    }
    for name, part in depth.items():
        if "stores" in part:
            part["stores"] = {**old.get(name, {}).get("stores", {}), **new[name]["stores"]}
    return {**old, **new, **depth}
