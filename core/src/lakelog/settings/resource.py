"""Settings that the application ships in one of its packages.

``files("myapp") / "lakelog.toml"`` is an ordinary :class:`~pathlib.Path` if the package is a
directory, so the type cannot distinguish it from a user's file. The location can: a ``Path`` inside
the directory of an imported package is a resource of that package. So is every ``Traversable`` that
is not a path, such as one in a zip file. A ``str`` is always a user's file, and :func:`embedded`
always a resource.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final, TypeGuard

import attrs

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

DEFAULT_NAME: Final = "lakelog.toml"


@attrs.frozen
class Embedded:
    """A resource with settings.

    :ivar file: the resource
    :ivar origin: its location, for display
    """

    file: Traversable
    origin: str


def embedded(package: str, name: str = DEFAULT_NAME) -> Embedded:
    """The settings in resource ``name`` of ``package``; they override only the store's files.

    >>> lakelog.open(path, settings=embedded("myapp"))                    # doctest: +SKIP
    """
    from importlib.resources import files  # most stores do not use this source

    return Embedded(files(package).joinpath(name), f"resource {name} of {package}")


def as_embedded(source: object, modules: Mapping[str, ModuleType]) -> Embedded | None:
    """``source`` as a resource, or ``None`` if it is none.

    :param modules: the imported modules by name, as in ``sys.modules``
    """
    if isinstance(source, Embedded):
        return source
    if isinstance(source, Path):
        package = package_of(source, modules)
        return Embedded(source, f"{source} (in package {package})") if package else None
    if isinstance(source, str | os.PathLike):
        return None
    return Embedded(source, f"resource {source}") if is_traversable(source) else None


def is_traversable(source: object) -> TypeGuard[Traversable]:
    """Whether ``source`` can be read as a resource, without a slow import to check its type."""
    return callable(getattr(source, "read_bytes", None))


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
