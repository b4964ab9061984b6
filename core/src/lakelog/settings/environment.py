"""Values from environment variables: ``LAKELOG_KEY``, and ``LAKELOG_SECTION__KEY`` for a plugin.

Names are upper case, with ``_`` for the ``-`` of a section's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lakelog.settings.catalog import Catalog
from lakelog.settings.given import CORE, Given, Layer

PREFIX: Final = "LAKELOG_"
NOT_SETTINGS: Final = frozenset({"LAKELOG_DISABLE_PLUGINS"})
"""Variables that are read before the settings."""


def from_environment(environ: Mapping[str, str], catalog: Catalog) -> Layer:
    """All variables that start with :data:`PREFIX`."""
    return Layer(
        tuple(
            _given(name, text, catalog)
            for name, text in sorted(environ.items())
            if name.startswith(PREFIX) and name not in NOT_SETTINGS
        )
    )


def variable_name(dotted: str) -> str:
    """The variable that sets a dotted key.

    >>> variable_name("group-commit.sync_flush_timeout_ms")
    'LAKELOG_GROUP_COMMIT__SYNC_FLUSH_TIMEOUT_MS'
    """
    return PREFIX + dotted.replace(".", "__").replace("-", "_").upper()


def _given(name: str, text: str, catalog: Catalog) -> Given:
    head, separator, key = name.removeprefix(PREFIX).partition("__")
    origin = f"environment {name}"
    if not separator:
        return Given(CORE, head.lower(), text, origin, text=True)
    section = catalog.section_named(head) or head.lower().replace("_", "-")
    return Given(section, key.lower(), text, origin, text=True)
