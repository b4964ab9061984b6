"""Reads the ``:ivar`` lines in the docstring of a settings class, for help texts."""

from __future__ import annotations

import inspect
import re
from typing import Any, Final

_IVAR: Final = re.compile(r"^:ivar (\w+):\s*(.*?)(?=^\s*$|^:|\Z)", re.MULTILINE | re.DOTALL)


def ivars_of(cls: type[Any]) -> dict[str, str]:
    """One-line descriptions by field name, including those of base classes."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        text = inspect.cleandoc(base.__dict__.get("__doc__") or "")
        found |= {name: " ".join(words.split()) for name, words in _IVAR.findall(text)}
    return found


def summary_of(cls: type[Any]) -> str:
    """The first line of a class's docstring."""
    return inspect.cleandoc(cls.__dict__.get("__doc__") or "").partition("\n")[0]
