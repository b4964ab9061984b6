"""Values from TOML: a given file, the store's own file, ``pyproject.toml``, or a resource.

A resource is a file that the application ships in one of its packages.
``files("myapp") / "lakelog.toml"`` is an ordinary :class:`~pathlib.Path` if the package is a
directory, so the type cannot distinguish it from a user's file. The location can: a ``Path`` inside
the directory of an imported package is a resource of that package. So is every ``Traversable`` that
is not a path, such as one in a zip file. A ``str`` is always a user's file, and :func:`embedded`
always a resource.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lakelog.errors import SettingsError
from lakelog.files.filesystem import RealFileSystem, read_file
from lakelog.format.layout import OWN_DIR, SETTINGS_FILE
from lakelog.settings.catalog import Catalog, Given
from lakelog.settings.effective import from_table

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

PYPROJECT: Final = "pyproject.toml"
DEFAULT_NAME: Final = "lakelog.toml"


class Embedded(NamedTuple):
    """A resource with settings.

    :ivar file: the resource
    :ivar origin: its location, for display
    """

    file: Traversable
    origin: str


def embedded(package: str, name: str = DEFAULT_NAME) -> Embedded:
    """The settings in resource ``name`` of ``package``; they override only the store's files.

    ::

        lakelog.open(path, settings=embedded("myapp"))
    """
    from importlib.resources import files  # most stores do not use this source

    return Embedded(files(package).joinpath(name), f"resource {name} of {package}")


def as_embedded(source: Any, modules: Mapping[str, ModuleType]) -> Embedded | None:
    """``source`` as a resource, or ``None`` if it is none.

    :param modules: the imported modules by name, as in ``sys.modules``
    """
    if isinstance(source, Embedded):
        return source
    if isinstance(source, Path):
        package = package_of(source, modules)
        return Embedded(source, f"{source} (in package {package})") if package else None
    if isinstance(source, str | os.PathLike) or not callable(getattr(source, "read_bytes", None)):
        return None
    return Embedded(source, f"resource {source}")


def package_of(file: Path, modules: Mapping[str, ModuleType]) -> str | None:
    """The innermost imported package whose directory contains ``file``."""
    parents = [str(parent) for parent in Path(os.path.abspath(file)).parents]
    found = {place: name for name, module in modules.items() for place in _places(module)}
    return next((found[parent] for parent in parents if parent in found), None)


def _places(module: ModuleType | None) -> list[str]:
    """The directories of a package; read from ``__dict__``, so that lazy modules stay unloaded."""
    places = getattr(module, "__dict__", {}).get("__path__", ())
    try:
        return [os.path.abspath(place) for place in places if isinstance(place, str)]
    except Exception:  # noqa: BLE001  # a foreign __path__ may raise anything
        return []


def from_toml(file: Traversable, catalog: Catalog, origin: str) -> Iterator[Given]:
    """The settings of a TOML file.

    Raises :class:`~lakelog.errors.SettingsError` if it cannot be read or is not TOML; so do the
    functions below.
    """
    return from_table(deepcopy(_parsed(read_bytes(file, origin), origin)), catalog, origin)


def from_store(path: Path, catalog: Catalog) -> Iterator[Given]:
    """The settings file in the store directory, if any."""
    file = path / OWN_DIR / SETTINGS_FILE
    try:
        data = read_file(RealFileSystem(), file) or b""
    except OSError as error:
        raise _unreadable(error, str(file)) from error
    return from_table(deepcopy(_parsed(data, str(file))), catalog, str(file))


def from_pyproject(cwd: Path, catalog: Catalog) -> Iterator[Given]:
    """``[tool.lakelog]`` of the nearest ``pyproject.toml``, from ``cwd`` upwards.

    A file that does not contain ``lakelog`` is not parsed.
    """
    file = next((at / PYPROJECT for at in (cwd, *cwd.parents) if _is_file(at / PYPROJECT)), None)
    data = read_bytes(file, str(file)) if file else b""
    table: object = _parsed(data if b"lakelog" in data else b"", str(file))
    for name in ("tool", "lakelog"):
        table = table.get(name, {}) if isinstance(table, Mapping) else table
    if not isinstance(table, Mapping):
        raise SettingsError("tool.lakelog must be a table", source=str(file))
    return from_table(deepcopy(table), catalog, f"{file} [tool.lakelog]")


def read_bytes(file: Traversable, origin: str) -> bytes:
    """The bytes of a file or resource; ``origin`` names it in the error."""
    try:
        return file.read_bytes()
    except (OSError, KeyError) as error:
        raise _unreadable(error, origin) from error


@lru_cache(maxsize=8)  # for a process that opens many stores; callers copy the result
def _parsed(data: bytes, origin: str) -> Mapping[str, Any]:
    if not data:
        return {}
    import tomllib  # most stores have no settings file

    try:
        return tomllib.loads(data.decode())
    except ValueError as error:
        raise SettingsError(f"this is not TOML: {error}", source=origin) from error


def _unreadable(error: Exception, origin: str) -> SettingsError:
    return SettingsError(f"these settings cannot be read ({error}); check the name", source=origin)


def _is_file(path: Path) -> bool:
    """Whether a readable file exists at ``path``."""
    try:
        return path.is_file()
    except OSError:
        return False
