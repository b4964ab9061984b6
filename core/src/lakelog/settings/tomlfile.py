"""Values from TOML: a file given, the store's own file, the host's pyproject, a resource."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lakelog.errors import SettingsError
from lakelog.files.filesystem import RealFileSystem, read_file
from lakelog.format.layout import OWN_DIR, SETTINGS_FILE
from lakelog.settings.arguments import from_table
from lakelog.settings.catalog import Catalog
from lakelog.settings.given import Layer

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

PYPROJECT: Final = "pyproject.toml"


def from_toml(file: Traversable, catalog: Catalog, origin: str) -> Layer:
    """The settings of a TOML file, which must be there."""
    return from_table(parse_toml(read_bytes(file, origin), origin), catalog, origin)


def from_store(path: Path, catalog: Catalog) -> Layer:
    """The settings that a store directory keeps in itself, if any."""
    file = path / OWN_DIR / SETTINGS_FILE
    try:
        data = read_file(RealFileSystem(), file)
    except OSError as error:
        raise _unreadable(error, str(file)) from error
    return Layer() if data is None else from_table(parse_toml(data, str(file)), catalog, str(file))


def from_pyproject(cwd: Path, catalog: Catalog) -> Layer:
    """``[tool.lakelog]`` of the nearest ``pyproject.toml``, from ``cwd`` upwards.

    A file without the word in it is not parsed.
    """
    file = next((at / PYPROJECT for at in (cwd, *cwd.parents) if _is_file(at / PYPROJECT)), None)
    data = read_bytes(file, str(file)) if file else b""
    if b"lakelog" not in data:
        return Layer()
    table: object = parse_toml(data, str(file))
    for name in ("tool", "lakelog"):
        table = table.get(name, {}) if isinstance(table, Mapping) else table
    if not isinstance(table, Mapping):
        raise SettingsError("tool.lakelog must be a table", source=str(file))
    return from_table(table, catalog, f"{file} [tool.lakelog]")


def parse_toml(data: bytes, origin: str) -> Mapping[str, Any]:
    """Parse TOML; ``origin`` is for the error."""
    import tomllib  # most stores have no file of settings

    try:
        return tomllib.loads(data.decode())
    except ValueError as error:
        raise SettingsError(f"this is not TOML: {error}", source=origin) from error


def read_bytes(file: Traversable, origin: str) -> bytes:
    """The bytes of a file or resource; ``origin`` is for the error."""
    try:
        return file.read_bytes()
    except (OSError, KeyError) as error:
        raise _unreadable(error, origin) from error


def _unreadable(error: Exception, origin: str) -> SettingsError:
    return SettingsError(f"these settings cannot be read ({error}); check the name", source=origin)


def _is_file(path: Path) -> bool:
    """Whether a file is there that we may see."""
    try:
        return path.is_file()
    except OSError:
        return False
