"""Collects strategies offered by plugins, rejects invalid ones, and selects them by name.

:mod:`~lakelog.registry.loading` finds plugins. ``loading`` registers them, and rejects mistakes
that pluggy would ignore. ``collection`` gathers the factories, ``conformance`` checks the objects
that they create, and ``events`` delivers lifecycle events. All of it runs at open, before any file
is touched; nothing here is called per message.
"""

from lakelog.registry.registry import Events, Registry, check_object, directories_problem

__all__ = ["Events", "Registry", "check_object", "directories_problem"]
