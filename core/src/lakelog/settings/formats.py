"""Files of settings in other formats than TOML, which plugins read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import attrs

from lakelog.errors import LakelogError, PluginError, SettingsError

BROKER_CONF: Final = "broker-conf"
"""The format of the file that is given as ``broker_conf=``."""

_TOML: Final = ".toml"
_KNOWN: Final[Mapping[str, str]] = {".conf": BROKER_CONF, ".properties": BROKER_CONF}
"""Suffixes that are never TOML, and whose format they are, so that a missing plugin is an error."""


@attrs.frozen
class TranslatedValue:
    """One of our settings, as a file of another system gives it.

    :ivar target: our dotted key
    :ivar value: its value, not yet checked
    :ivar keys: the keys in the file that it comes from
    """

    target: str
    value: object
    keys: tuple[str, ...]


@attrs.frozen
class Translation:
    """What a file of another system says.

    :ivar values: what is set here by it; where no installed plugin has the key, it is reported
    :ivar unused: its keys that set nothing here, and why
    """

    values: tuple[TranslatedValue, ...] = ()
    unused: Mapping[str, str] = attrs.field(factory=dict)


class SettingsFormat(Protocol):
    """Reads the files of settings of another system, for one store."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """How names of such files end: lower case, with the dot, and never ``.toml``."""
        raise NotImplementedError

    def read(self, data: bytes, origin: str) -> Translation:
        """Translate a file.

        :param data: all of its bytes
        :param origin: its name, for errors

        Raises :class:`~lakelog.errors.SettingsError` with ``origin`` as its source, and the key of
        the file, for what cannot be understood. A key without a meaning here is no error.
        """
        raise NotImplementedError

    def translate_key(self, key: str) -> str | None:
        """Our dotted key for one of the other system's, if it has one; only asked for errors."""
        raise NotImplementedError


@attrs.frozen
class Formats:
    """The formats on offer, each made when a file or an error asks for it.

    :ivar names: of all, sorted
    :ivar make: gives the one of a name; raises :class:`~lakelog.errors.PluginError`
    :ivar blame: the error that says what the one of a name did
    """

    names: tuple[str, ...]
    make: Callable[[str], SettingsFormat]
    blame: Callable[[str, str], PluginError]

    def of_file(self, file: Path) -> str | None:
        """The name of the format of ``file`` by its suffix; ``None`` is TOML.

        Raises :class:`~lakelog.errors.SettingsError` where several formats have the suffix.
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
        """What a file in the format ``name`` says; raises as :attr:`make` and its ``read`` do."""
        try:
            found: Any = self.make(name).read(data, origin)
        except LakelogError:
            raise
        except Exception as error:
            what = f"failed to read {origin} with {type(error).__name__}: {error}"
            raise self.blame(name, what) from error
        if not isinstance(found, Translation):
            raise self.blame(name, f"read {origin} as {found!r}, which is no Translation")
        return found

    def translate_key(self, key: str) -> Iterator[str]:
        """What a key that nobody has here is called here, by any of the formats."""
        found = (self.make(name).translate_key(key) for name in self.names)
        return (target for target in found if target is not None)


@attrs.frozen
class Installed:
    """What plugins bring to the settings of one store.

    :ivar sections: the settings class of every strategy, by its name
    :ivar formats: readers of other files than TOML
    """

    sections: Mapping[str, type[Any]]
    formats: Formats
