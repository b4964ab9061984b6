"""NumPy, imported on first use: to open a store, put, get and close needs none of it.

``from lakelog_format.lazy import np`` stands for ``import numpy as np`` in modules that every open
store loads. Python 3.15 has ``lazy import`` for this (PEP 810).
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
else:

    class _OnFirstUse(ModuleType):
        """Takes over all names of the module when the first one is looked up."""

        def __getattr__(self, name: str) -> Any:
            import numpy

            vars(self).update(vars(numpy))
            return getattr(numpy, name)

    np = _OnFirstUse("numpy")

__all__ = ["np"]
