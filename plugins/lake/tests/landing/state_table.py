"""Writes the states of ``test_table_states.py`` as Markdown: ``state_table [JUNIT_FILE …]``.

The files are those of ``pytest --junit-xml``, of processes or of Spark; without them the outcomes
are those that the states demand.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from xml.etree import ElementTree

from lakelog_testing.contracts.tables import TableState
from plugins.lake.tests.landing.delta_states import DELTA
from plugins.lake.tests.landing.iceberg_states import ICEBERG
from plugins.lake.tests.landing.parquet_states import PARQUET

FORMATS: Mapping[str, list[TableState]] = {"Iceberg": ICEBERG, "Delta": DELTA, "Parquet": PARQUET}
_CLASS = re.compile(r"Test(Iceberg|Delta|Parquet)(BySpark)?$")
Found = dict[tuple[str, str, str], str]
"""Outcomes by format, engine and state."""


def outcomes(paths: Iterable[str]) -> Found:
    """Of the tests in reports of pytest; a test that failed has ``FAILED``."""
    found, wanted = Found(), stated()
    for path in paths:
        for case in ElementTree.parse(path).iter("testcase"):
            known = _CLASS.search(case.get("classname", ""))
            name = case.get("name", "")
            if known is None or "[" not in name:
                continue
            is_bad = case.find("failure") is not None or case.find("error") is not None
            key = (known[1], "Spark" if known[2] else "processes", name.partition("[")[2][:-1])
            found[key] = "FAILED" if is_bad else wanted[key]
    return found


def stated() -> Found:
    """What the tests demand."""
    return {
        (name, engine, each.name): each.outcome
        for name, states in FORMATS.items()
        for each in states
        for engine in ("processes", "Spark")
    }


def markdown(found: Found) -> Iterable[str]:
    """A row for each state; a format that cannot have it has the reason."""
    columns = [(name, engine) for name in FORMATS for engine in ("processes", "Spark")]
    yield "| somebody … | state | " + " | ".join(f"{n}, {e}" for n, e in columns) + " |"
    yield "| --- " * (2 + len(columns)) + "|"
    by_name: dict[str, TableState] = {}
    for states in FORMATS.values():
        for each in states:
            by_name.setdefault(each.name, each)
    for each in by_name.values():
        cells = [
            found.get((*column, each.name), "not run")
            if each.name in {one.name for one in FORMATS[column[0]]}
            else f"none: {each.only}"
            for column in columns
        ]
        yield f"| {each.what} | `{each.name}` | " + " | ".join(cells) + " |"
    counts = [sum((*column, name) in found for name in by_name) for column in columns]
    yield "| states | | " + " | ".join(map(str, counts)) + " |"


if __name__ == "__main__":
    given = outcomes(sys.argv[1:]) if len(sys.argv) > 1 else stated()
    sys.stdout.write("\n".join(markdown(given)) + "\n")
