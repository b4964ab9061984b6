"""Settings files in formats other than TOML, which plugins read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog_interfaces.errors import LakelogError, PluginError, SettingsError
from lakelog_interfaces.strategies.translating import SettingsFormat, Translation

BROKER_CONF: Final = "broker-conf"
"""The format of the file given as ``broker_conf=``."""

_TOML: Final = ".toml"
_KNOWN: Final[Mapping[str, str]] = {".conf": BROKER_CONF, ".properties": BROKER_CONF}
"""Formats by suffix for files that are never TOML; without the plugin, reading one is an error."""


@attrs.frozen
class Formats:
    """The formats on offer, each created when a file or an error requires it.

    :ivar names: all names, sorted
    :ivar make: returns a format by name; raises :class:`~lakelog.errors.PluginError`
    :ivar build_error: returns an error about a format, from its name and a text
    """

    names: tuple[str, ...]
    make: Callable[[str], SettingsFormat]
    build_error: Callable[[str, str], PluginError]

    def of_file(self, file: Path) -> str | None:
        """The name of the format of ``file`` by its suffix; ``None`` is TOML.

        Raises :class:`~lakelog.errors.SettingsError` if several formats have the suffix.
        """
        suffix = file.suffix
        if suffix == _TOML:
            return None
        found = [name for name in self.names if suffix in self.make(name).suffixes]
        if len(found) > 1:
            what = f"{' and '.join(found)} all read files whose names end with {suffix}"
            raise SettingsError(f"{what}; switch one of their plugins off", source=str(file))
        return found[0] if found else _KNOWN.get(suffix)

    def read(self, name: str, data: bytes, origin: str) -> Translation:
        """Translate a file in the format ``name``; raises like :attr:`make` and ``read``."""
        try:
            found: Any = self.make(name).read(data, origin)
        except LakelogError:
            raise
        except Exception as error:
            what = f"failed to read {origin} with {type(error).__name__}: {error}"
            raise self.build_error(name, what) from error
        if not isinstance(found, Translation):
            raise self.build_error(name, f"read {origin} as {found!r}, which is no Translation")
        return found

    def translate_key(self, key: str) -> Iterator[str]:
        """Lakelog's names for an unknown key, according to all formats."""
        found = (self.make(name).translate_key(key) for name in self.names)
        return (target for target in found if target is not None)
