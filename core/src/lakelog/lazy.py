"""NumPy, imported on first use: opening, putting, getting and closing do not need it.

``from lakelog.lazy import np`` replaces ``import numpy as np`` in modules that every open
store loads. Python 3.15 has ``lazy import`` for this (PEP 810).

An attribute that is computed on first access, without a lock.

``functools.cached_property`` of Python 3.11 holds one lock for all objects of a class while it
computes. Threads would block each other, and a child forked meanwhile would deadlock.
"""

from __future__ import annotations

import sys
from _thread import LockType, allocate_lock, start_new_thread
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload
from weakref import ref

if TYPE_CHECKING:
    import numpy as np
else:

    class _OnFirstUse(ModuleType):
        """Imports the module at the first access, and copies all of its names."""

        def __getattr__(self, name: str) -> Any:
            loaded = getattr(sys.modules.get("numpy"), "__spec__", None)
            if getattr(loaded, "_initializing", True):
                # An exception of a signal handler would end the import in the middle, and NumPy
                # cannot be imported again then, or would leave the import's lock acquired. No
                # signal handler runs in another thread.
                imported = allocate_lock()
                imported.acquire()
                run = partial(_import, imported)
                begun = ref(run)
                with suppress(RuntimeError):  # no thread: it is imported here
                    start_new_thread(run, ())
                    del run  # a thread without memory for its first frame frees it, and ends
                    while begun() is not None and not imported.acquire(timeout=0.02):
                        pass
            import numpy

            vars(self).update(vars(numpy))
            return getattr(numpy, name)

    def _import(imported: LockType) -> None:
        with suppress(Exception):  # the waiting thread raises it
            import_module("numpy")
        imported.release()

    np = _OnFirstUse("numpy")

Value = TypeVar("Value")


class cached_property(Generic[Value]):  # noqa: N801  # a decorator, named as that of functools
    """Compute the value once per object, and store it in the object's ``__dict__``.

    Threads that read it first at the same time may each compute it; all get the same value.
    """

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, one: None, owner: type) -> Self: ...

    @overload
    def __get__(self, one: object, owner: type) -> Value: ...

    def __get__(self, one: object | None, owner: type) -> Self | Value:
        if one is None:
            return self
        value: Value = vars(one).setdefault(self._name, self._compute(one))
        return value


__all__ = ["cached_property", "np"]
