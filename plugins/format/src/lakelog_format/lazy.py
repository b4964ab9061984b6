"""NumPy, imported on first use: opening, putting, getting and closing do not need it.

``from lakelog_format.lazy import np`` replaces ``import numpy as np`` in modules that every open
store loads. Python 3.15 has ``lazy import`` for this (PEP 810).
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
else:

    class _OnFirstUse(ModuleType):
        """Imports the module at the first access, and copies all of its names."""

        def __getattr__(self, name: str) -> Any:
            import numpy

            vars(self).update(vars(numpy))
            return getattr(numpy, name)

    np = _OnFirstUse("numpy")

__all__ = ["np"]
