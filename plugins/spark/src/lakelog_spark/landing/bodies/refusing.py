"""How a schema file, or a name of a format, is refused."""

from __future__ import annotations

from typing import Final

from lakelog.errors import SettingsError

KEY: Final = "--body"


def refused(what: str, source: str) -> SettingsError:
    """The error for what is wrong in the file ``source``."""
    return SettingsError(what, key=KEY, source=source)


def needs(package: str, extra: str) -> SettingsError:
    """The error where ``package`` is not installed."""
    return SettingsError(
        f"this needs {package}: pip install 'lakelog-spark[{extra}]'",
        key=KEY,
    )
