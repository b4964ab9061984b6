"""Writes JSON to stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from lakelog_cli.schema import plain_value


def write_lines(rows: Iterable[Mapping[str, Any]]) -> None:
    """Write one JSON object per line."""
    sys.stdout.writelines(f"{json.dumps(row, separators=(',', ':'))}\n" for row in rows)


def write_document(document: object) -> None:
    """Write one indented JSON document."""
    sys.stdout.write(f"{json.dumps(document, indent=2, default=plain_value)}\n")
