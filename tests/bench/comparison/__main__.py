"""The command line: which parts, which stores, how often."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.bench import machine
from tests.bench.comparison import faults, page
from tests.bench.comparison.page import Record
from tests.bench.comparison.stores import STORES, Store, damaged_stores
from tests.bench.model import CannotRunError
from tests.support.killing import ROOT

_CACHE: Final = ROOT / ".cache" / "bench"
_Part: TypeAlias = Callable[[Store, Path], dict[str, Any]]


def arguments() -> argparse.Namespace:
    """Read the command line."""
    names = [each.name for each in STORES]
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.comparison", description="Break every store, write the page."
    )
    parser.add_argument(
        "parts", nargs="*", help=f"of {', '.join(PARTS)}, figures; all if none is named"
    )
    parser.add_argument("--rounds", type=int, default=30, help="kills of every store (30)")
    parser.add_argument("--cuts", type=int, default=10, help="power cuts of every store (10)")
    parser.add_argument("--flips", type=int, default=10, help="bytes flipped, each alone (10)")
    parser.add_argument("--only", action="append", metavar="STORE", help=f"of {'; '.join(names)}")
    parser.add_argument(
        "--figures", type=Path, metavar="FILE", help="what `make bench --json` wrote; not run anew"
    )
    parser.add_argument("--page", action="store_true", help="run nothing, write the page again")
    parser.add_argument("--dir", type=Path, default=_CACHE, help="a folder on the disk to use")
    options = parser.parse_args()
    for given, known in ((options.parts, {*PARTS, "figures"}), (options.only or (), {*names})):
        if unknown := set(given) - known:
            parser.error(f"no {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}")
    return options


PARTS: Final[Mapping[str, Callable[[argparse.Namespace], _Part]]] = {
    "kills": lambda given: lambda store, path: faults.kills(store, path, given.rounds),
    "cuts": lambda given: lambda store, path: faults.cuts(store, path, given.cuts),
    "sync_once": lambda _given: faults.sync_once,
    "syncs_then_cut": lambda _given: faults.syncs_then_cut,
    "full_disk": lambda _given: faults.full_disk,
    "damage": lambda given: lambda store, path: faults.damage(store, path, given.flips),
}


def stores_of(part: str) -> list[Store]:
    """Return the stores of a part; failing calls concern only stores that sync each put."""
    if part == "damage":
        return damaged_stores()
    if part in ("sync_once", "syncs_then_cut"):
        return [each for each in STORES if each.is_durable]
    return list(STORES)


def run(part: str, work: _Part, store: Store, parent: Path) -> dict[str, Any]:
    """Run one part with one store; return its result, or the reason why it cannot run."""
    reason = store.missing()
    if reason is not None:
        return {"not_run": f"not run: {reason}"}
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        scratch = Path(folder) / "scratch"
        try:
            found = work(store, scratch)
        except CannotRunError as error:
            found = {"not_run": f"not run: {error}"}
    without_place: dict[str, Any] = json.loads(json.dumps(found).replace(f"{scratch}/", ""))
    return without_place


def main() -> None:
    """Run the parts, save the results after each store, and write the page."""
    options = arguments()
    options.dir.mkdir(parents=True, exist_ok=True)
    for part in () if options.page else options.parts or [*PARTS, "figures"]:
        if part == "figures":
            page.keep({part: {"date": _today(), "rows": page.figures(options.figures)}})
        else:
            _part(part, options)
    page.PAGE.write_text(page.page(page.load()))
    print(f"{page.PAGE}: written from {page.FILE}")


def _part(part: str, options: argparse.Namespace) -> None:
    for store in stores_of(part):
        if options.only is not None and store.name not in options.only:
            continue
        what = run(part, PARTS[part](options), store, options.dir)
        print(f"{part}, {store.name}: {json.dumps(what)}", flush=True)
        load = round(os.getloadavg()[0], 1)
        entry = {"date": _today(), "load": load, "stores": {store.name: what}}
        found: Record = {part: entry}
        if "not_run" not in what:
            found["versions"] = {store.name: store.version()}
        page.keep({"machine": machine.describe(options.dir), **found})


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


if __name__ == "__main__":
    main()
