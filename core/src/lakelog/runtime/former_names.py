"""Imports public modules by their former names, with a ``DeprecationWarning``."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Final

_TABLE: Final = Path(__file__).with_suffix(".txt").read_text()
FORMER: Final = dict(line.split() for line in _TABLE.splitlines())
"""Present name by former name; submodules of a moved package have moved too."""


class FormerNames:
    """Finds modules by their former names, before the search for files.

    It has the methods of a finder and of a loader without their base classes: ``importlib.abc``
    would load ``importlib.resources`` with every ``import lakelog``.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for former names only."""
        del path, target  # the name decides
        if _present(fullname) is None:
            return None
        return spec_from_loader(fullname, self)  # type: ignore[arg-type]  # load_module is deprecated

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import the module under its present name."""
        name = _present(spec.name)
        assert name is not None
        warnings.warn(f"{spec.name} is {name} now", DeprecationWarning, stacklevel=2)
        module = import_module(name)
        spec.loader_state = module.__spec__  # importing replaces it by `spec`
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module was executed under its present name."""
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state


def _present(name: str) -> str | None:
    if not name.startswith("lakelog."):
        return None
    head, rest = name, ""
    while head != "lakelog":
        if head in FORMER:
            return FORMER[head] + rest
        head, _, last = head.rpartition(".")
        rest = f".{last}{rest}"
    return None


def install() -> None:
    """Enable imports by former names in this process."""
    if not any(isinstance(each, FormerNames) for each in sys.meta_path):
        sys.meta_path.insert(0, FormerNames())
