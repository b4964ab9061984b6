"""What goes to stdout as JSON: one way to write it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from lakelog.settings.schema import plain_value


def write_lines(rows: Iterable[Mapping[str, Any]]) -> None:
    """One JSON object a line."""
    sys.stdout.writelines(f"{json.dumps(row, separators=(',', ':'))}\n" for row in rows)


def write_document(document: object) -> None:
    """One JSON document, for people too."""
    sys.stdout.write(f"{json.dumps(document, indent=2, default=plain_value)}\n")
