"""The rooms of lakelog-core as ``core/rooms.toml`` lists them, and as they are on the disk.

``python -m tests.rooms`` writes the table of rooms in ``core/docs/ARCHITECTURE.md``.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
CORE: Final = ROOT / "core" / "src" / "lakelog"
PAGE: Final = ROOT / "core" / "docs" / "ARCHITECTURE.md"
PLAN: Final[dict[str, Any]] = tomllib.loads((ROOT / "core" / "rooms.toml").read_text())
ROOMS: Final[list[dict[str, Any]]] = PLAN["room"]
BEGIN: Final = "<!-- rooms: written by python -m tests.rooms -->\n"
END: Final = "<!-- end of rooms -->\n"


def modules(folder: Path) -> list[str]:
    """The modules right in a folder, by name."""
    return sorted(each.stem for each in folder.glob("*.py") if each.stem != "__init__")


def table() -> str:
    """The table of rooms as ARCHITECTURE.md has it."""
    rows = ["| room | modules | duty |", "| --- | --- | --- |"]
    rows += [f"| `{each['name']}` | {_listed(each)} | {each['role']} |" for each in ROOMS]
    return "\n".join(rows) + "\n"


def _listed(room: dict[str, Any]) -> str:
    return " ".join(f"`{each}`" for each in [*modules(CORE / room["name"]), *room.get("also", [])])


def page() -> str:
    """ARCHITECTURE.md with the table as it should be."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page())
