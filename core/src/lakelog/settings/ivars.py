"""What the docstring of a settings class says of each key: its ``:ivar`` lines."""

from __future__ import annotations

import inspect
import re
from typing import Any, Final

_IVAR: Final = re.compile(r"^:ivar (\w+):\s*(.*?)(?=^\s*$|^:|\Z)", re.MULTILINE | re.DOTALL)


def ivars_of(cls: type[Any]) -> dict[str, str]:
    """Descriptions by field name, those of base classes included, each on one line."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        text = inspect.cleandoc(base.__dict__.get("__doc__") or "")
        found |= {name: " ".join(words.split()) for name, words in _IVAR.findall(text)}
    return found


def summary_of(cls: type[Any]) -> str:
    """The first line of a docstring."""
    return inspect.cleandoc(cls.__dict__.get("__doc__") or "").partition("\n")[0]
