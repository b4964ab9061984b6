"""Writes the tables of ``core/docs/comparison.md`` from the record; the text is in the page.

The record has the results by part and store, and selected figures of the benchmark's suites.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.bench.comparison.stores import STORES, damaged_stores
from tests.bench.running import python
from tests.support.killing import ROOT

PAGE: Final = ROOT / "core" / "docs" / "comparison.md"
BEGIN: Final = "<!-- {}: written by python -m tests.bench.comparison -->"
END: Final = "<!-- end -->"
FILE: Final = Path(__file__).with_name("found.json")
_SUITES: Final = ("put", "put_batch", "durable", "read")
_COLUMNS: Final = {
    "lakelog": "lakelog",
    "rocketmq": "RocketMQ's Java store",
    "lmdb": "LMDB",
    "rocksdb": "RocksDB",
    "sqlite": "SQLite",
    "sqlite wal": "SQLite",
}
"""By the name of a contender, that of its column."""
_COUNTS: Final = ("acknowledged", "missing", "doubled", "wrong", "disordered", "unanswered")
_WORDS_LENGTH: Final = 120
_NOT_YET: Final = "Not in the record yet."
Record: TypeAlias = dict[str, Any]
"""``machine``; ``versions`` by store; ``{"date", "load", "stores": {name: what}}`` by part."""
_Found: TypeAlias = Mapping[str, Any]
_Row: TypeAlias = Sequence[object]


# --- the record --------------------------------------------------------------------------------


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


def figures(file: Path | None) -> list[dict[str, Any]]:
    """Return the results of the suites, by contest; runs the suites without a ``file``.

    :param file: the output of `python -m tests.bench --json FILE`
    """
    with tempfile.TemporaryDirectory() as folder:
        if file is None:
            file = Path(folder) / "figures.json"
            command = python("tests.bench", *_SUITES, "--rounds", 5, "--json", file)
            subprocess.run(command, cwd=ROOT, check=True)
        measured = json.loads(file.read_text())["rows"]
    found = dict[str, dict[str, float]]()
    for row in measured:
        figures = list(row["median"].values())
        if row["suite"] in _SUITES and row["store"] in _COLUMNS and figures:
            what = f"{row['suite']}: {row['contest']}"
            found.setdefault(what, {})[_COLUMNS[row["store"]]] = figures[0]
    return [{"what": what, "median": median} for what, median in found.items()]


# --- the page ----------------------------------------------------------------------------------


def page(record: Record) -> str:
    """Return the whole page with the tables of ``record``."""
    text = PAGE.read_text()
    for name, table in TABLES.items():
        begin = BEGIN.format(name)
        block = re.compile(f"{re.escape(begin)}.*?{END}", re.DOTALL)
        lines = table(record) if name in {"promises", *record} else [_NOT_YET]
        (old,) = block.findall(text)
        text = text.replace(old, "\n".join([begin, "", *lines, "", END]))
    return text


def _promises(record: Record) -> list[str]:
    machine = record["machine"]
    told = [machine[each] for each in ("cpu", "system", "file system")]
    rows = [
        (each.name, record["versions"][each.name], each.promise, _link(each.source))
        for each in STORES
        if each.name in record["versions"]
    ]
    headings = ("store", "version", "of a put that returned it promises", "where it says so")
    return [*_table(headings, rows), "", f"The machine: {', '.join(told)}."]


def _link(source: str) -> str:
    name = source.split("/")[2].removeprefix("www.") if "://" in source else "durability"
    return f"[{name}]({source})"


def _kills(record: Record) -> list[str]:
    counted = ("acknowledged", "missing", "twice", "other bytes", "out of order")
    return _by_store(
        record["kills"],
        ("kills", *counted, "there, not acknowledged", "not opened", "opened in ms (longest)"),
        lambda found: [
            found["rounds"],
            *(f"{found[each]:,}" for each in _COUNTS),
            found["unopened"],
            f"{found['open_ms']:,.0f} ({found['longest_open_ms']:,.0f})",
        ],
    )


def _cuts(record: Record) -> list[str]:
    promised = {each.name: "all" if each.is_durable else "not the last" for each in STORES}
    lost = ("missing", "cuts that lost some", "oldest of these, ms before the cut")
    return _by_store(
        record["cuts"],
        ("cuts", "acknowledged", "promised", *lost, "other bytes", "not opened", "what it said"),
        lambda found: [
            found["rounds"],
            f"{found['acknowledged']:,}",
            promised[found["name"]],
            f"{found['missing']:,}",
            found["lossy"],
            f"{found['oldest_lost_ms']:,}" if found["missing"] else "-",
            *(found[each] for each in ("wrong", "unopened")),
            _said(*found["told"]),
        ],
    )


def _refusals(part: str) -> Callable[[Record], list[str]]:
    def row(found: _Found) -> _Row:
        again = found.get("acknowledged_after_space", found["acknowledged_after_refusal"])
        goes_on = "yes" if again else "no"
        ended = f"the process {found['death']}" if found["death"] else ""
        logged = f"in its log: {found['logged']}" if found["logged"] and not ended else ""
        return [
            f"{found['refused']:,}",
            _said(found["refused_with"] or "", ended, logged),
            goes_on if found["refused"] else "refused none",
            f"{found['acknowledged']:,}",
            f"{found['missing']:,}",
            found["unopened"],
        ]

    headings = ("puts refused", "what it said", "takes puts again", "acknowledged")
    return lambda record: _by_store(
        record[part], (*headings, "of these missing", "not opened"), row
    )


def _damage(record: Record) -> list[str]:
    rows = list[_Row]()
    for name in (each.name for each in damaged_stores()):
        found = record["damage"]["stores"].get(name, {"not_run": "not run"})
        if "not_run" in found:
            rows.append([name, found["not_run"]])
            continue
        for kind in ("flipped", "zeroed", "truncated"):
            each = found[kind]
            read = {f"{each['fewest_read']:,}": 1, f"{each['most_read']:,}": 1}
            row = [name, kind, f"{each['told']} of {each['trials']}", " to ".join(read)]
            counts = [each["silent_losses"], each["wrong"], each["unopened"]]
            logged = f"in its log: {each['logged']}" if each["logged"] and not each["told"] else ""
            rows.append([*row, *counts, _said(each["words"] or "", logged)])
    headings = ("store", "damage", "told", "read whole", "losses not told", "other bytes")
    return [_when(record["damage"]), "", *_table((*headings, "not opened", "what it said"), rows)]


def _figures(record: Record) -> list[str]:
    rows = record["figures"]["rows"]
    stores = list(dict.fromkeys(name for row in rows for name in row["median"]))
    found = [(row["what"], *(_number(row["median"].get(name)) for name in stores)) for row in rows]
    return [f"Measured on {record['figures']['date']}.", "", *_table(("", *stores), found)]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _by_store(
    part: Mapping[str, Any], headings: Sequence[str], row: Callable[[_Found], _Row]
) -> list[str]:
    """Return a table with a row per store: its results, or the reason why it was not run."""
    found = [(each.name, part["stores"].get(each.name)) for each in STORES]
    rows = [
        [name, each["not_run"]] if "not_run" in each else [name, *row({**each, "name": name})]
        for name, each in found
        if each is not None
    ]
    return [_when(part), "", *_table(("store", *headings), rows)]


def _when(part: Mapping[str, Any]) -> str:
    return f"Of {part['date']}, at a load of {part['load']:.0f}."


def _said(*words: str) -> str:
    """Return texts as one cell of a table."""
    plain = [re.sub(r"[|`\s]+", " ", word)[:_WORDS_LENGTH] for word in words if word]
    return "; ".join(f"`{word}`" for word in plain) or "-"


def _table(headings: Sequence[str], rows: Iterable[_Row]) -> list[str]:
    filled = [[*map(str, row), *[""] * (len(headings) - len(row))] for row in rows]
    lines = [headings, ["---"] * len(headings), *filled]
    return [f"| {' | '.join(line)} |" for line in lines]


TABLES: Final[Mapping[str, Callable[[Record], list[str]]]] = {
    "promises": _promises,
    "kills": _kills,
    "cuts": _cuts,
    "sync_once": _refusals("sync_once"),
    "syncs_then_cut": _refusals("syncs_then_cut"),
    "full_disk": _refusals("full_disk"),
    "damage": _damage,
    "figures": _figures,
}
