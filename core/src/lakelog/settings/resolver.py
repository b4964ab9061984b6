"""Merges all sources to one :class:`Settings`: the strongest source of a key decides.

The weakest source are values inferred from a store's files. The name of a segment is the offset of
its first byte, so names alone determine the size of a segment even if files were truncated.

TOML comes from a given file, the store's own file, ``pyproject.toml``, or a resource.
A resource is a file that the application ships in one of its packages.
``files("myapp") / "lakelog.toml"`` is an ordinary :class:`~pathlib.Path` if the package is a
directory, so the type cannot distinguish it from a user's file. The location can: a ``Path`` inside
the directory of an imported package is a resource of that package. So is every ``Traversable`` that
is not a path, such as one in a zip file. A ``str`` is always a user's file, and :func:`embedded`
always a resource.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import lru_cache, partial
from itertools import chain, pairwise
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from lakelog.arguments import encodable, file_path
from lakelog.errors import SettingsError, raised_by_handler
from lakelog.files.filesystem import RealFileSystem, read_file, unreadable
from lakelog.format.layout import COMMITLOG_DIR, OWN_DIR, SETTINGS_FILE, is_segment_name
from lakelog.hooks.kinds import Infer
from lakelog.settings import effective
from lakelog.settings.conversion import build
from lakelog.settings.effective import BROKER_CONF, CORE, Catalog, Given, dotted, from_table

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
    except Exception as error:  # a foreign __path__ may raise anything
        if raised_by_handler(error):
            raise
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
    is_refused = isinstance(error, PermissionError)
    advice = "permissions of the file and of the folders above" if is_refused else "the name"
    return SettingsError(f"these settings cannot be read ({error}); check {advice}", source=origin)


def _is_file(path: Path) -> bool:
    """Whether a readable file exists at ``path``."""
    try:
        return path.is_file()
    except OSError:
        return False


Listing: TypeAlias = Sequence[tuple[str, int]]
"""Names and lengths of files in one directory, in any order."""

Chosen: TypeAlias = Mapping[str, dict[str, Given]]
"""Values of stronger sources, by section and key; has an entry for every section."""

SMALLEST_SEGMENT_BYTES: Final = 4096
"""The smallest valid setting; a smaller file was truncated."""


def from_files(path: Path, catalog: Catalog, chosen: Chosen) -> Iterator[Given]:
    """Yield the inferred values of existing keys; the caller uses them for keys not set yet."""
    looks: dict[str, Infer] = {CORE: partial(_segments, chosen), **catalog.inferring}
    for section, infer in looks.items():
        with catalog.blaming(section, "infer"):
            found = list(infer(path))
        for key, value, file in found:
            shown = file.relative_to(path) if file.is_relative_to(path) else file
            given = Given(section, key, value, f"{effective.INFERRED} {shown}")
            if catalog.knows(given):
                yield given


def _segments(chosen: Chosen, path: Path) -> Iterator[tuple[str, int, Path]]:
    given = chosen[CORE].get("commitlog_path")
    value = given.value if given else None
    if isinstance(value, str | Path):
        encodable("commitlog_path", value)
    directory = path / (value if value and isinstance(value, str | Path) else COMMITLOG_DIR)
    found = file_size(listing(directory))
    if found is not None and found[0] >= SMALLEST_SEGMENT_BYTES:
        yield "segment_size_bytes", found[0], directory / found[1]


_MOST_FILE_BYTES: Final = 1 << 40


def file_size(files_found: Listing) -> tuple[int, str] | None:
    """The size of a log's files, and the name of the file that determines it.

    Adjacent names are one size apart, unless a file between them is missing; then equal lengths
    decide. The length of a single file decides if its name does not contradict it. If no file is as
    long as names are apart, one of them may be a stray file: the longest one decides.
    """
    files = sorted(
        (int(name), length, name) for name, length in files_found if is_segment_name(name)
    )
    distances = [after[0] - before[0] for before, after in pairwise(files)]
    whole = [(length, name) for _, length, name in files if length]
    alike = len(whole) > 1 and len({length for length, _ in whole}) == 1
    if whole and (alike or len(files) == 1) and not any(at % whole[0][0] for at, _, _ in files):
        return whole[0]
    if not distances:
        return None
    size = min(distances)
    confirmed = [name for length, name in whole if length == size]
    aligned = [(length, name) for at, length, name in files if length and not at % length]
    if aligned and not (confirmed or alike) and (max(aligned)[0] > size or size > _MOST_FILE_BYTES):
        return max(aligned)
    return size, (confirmed or [files[0][2]])[0]


def listing(directory: Path) -> Listing:
    """Names and lengths of the files in a directory; empty if it does not exist.

    A running owner may delete the oldest files meanwhile; those are skipped.
    """
    found = []
    for entry in entries(directory):
        try:
            if entry.is_file(follow_symlinks=False):  # symbolic links are not files of a store
                found.append((entry.name, entry.stat().st_size))
        except OSError:
            continue
    return found


def entries(directory: Path) -> list[os.DirEntry[str]]:
    """The entries of a directory; empty if it cannot be read."""
    try:
        with os.scandir(directory) as found:
            return list(found)
    except OSError:
        return []


_OBJECT: Final = "object"

_FILE: Final = "file"

_RESOURCE: Final = "resource"


def resolve(
    path: Path,
    *,
    installed: Catalog,
    arguments: Mapping[str, Any],
    source: object | None,
    broker_conf: Path | None,
    environ: Mapping[str, str],
    cwd: Path,
    tolerate_missing: bool,
) -> effective.Settings:
    """Collect, merge and check the settings of the store in ``path``.

    :param installed: the sections of plugins, and the formats of files
    :param arguments: values given by keyword
    :param source: the argument ``settings=``: a mapping, an attrs object, a file or a resource
    :param broker_conf: a RocketMQ ``broker.conf``, which a plugin reads
    :param environ: the environment
    :param cwd: the folder where the search for the application's ``pyproject.toml`` begins, and to
        which file names are relative
    :param tolerate_missing: whether sections of plugins that are not installed are reported as
        unused, and not refused
    :returns: frozen settings with their origins

    Raises :class:`~lakelog.errors.SettingsError`, :class:`~lakelog.errors.ReadFailed` if a file
    with settings cannot be read, and :class:`~lakelog.errors.MissingPlugin` if no plugin reads the
    format of a file.
    """
    try:
        rank, given = _given(source, cwd, installed)
        sources: tuple[Iterable[Given], ...] = (
            effective.from_table(arguments, installed, "argument"),
            given if rank == _OBJECT else (),
            effective.from_environment(environ, installed),
            given if rank == _FILE else (),
            () if broker_conf is None else _translated(cwd / broker_conf, BROKER_CONF, installed),
            from_store(path, installed),
            from_pyproject(cwd, installed),
            given if rank == _RESOURCE else (),
        )
        chosen, unused = _merged(sources, installed, tolerate_missing=tolerate_missing)
    except OSError as error:
        raise unreadable(Path(error.filename or path), error) from error
    for found in from_files(path, installed, chosen):
        chosen[found.section].setdefault(found.key, found)
    return _effective(installed, chosen, unused)


def _given(source: object, cwd: Path, catalog: Catalog) -> tuple[str, Iterable[Given]]:
    """Read ``settings=``, whose kind determines its rank among the sources."""
    resource = as_embedded(source, sys.modules)
    if resource is not None:
        return _RESOURCE, from_toml(resource.file, catalog, resource.origin)
    if source is None:
        return _OBJECT, ()
    if effective.is_table(source):
        return _OBJECT, effective.from_object(source, catalog, "argument settings")
    if not isinstance(source, str | os.PathLike):
        what = f"settings= is a {type(source).__name__}"
        raise SettingsError(f"{what}; give a mapping, an attrs object, a file or a resource")
    file = file_path("settings", cwd / Path(source), "a TOML file of settings")
    name = catalog.formats.of_file(file)
    if name is not None:
        return _FILE, _translated(file, name, catalog)
    return _FILE, from_toml(file, catalog, str(file))


def _translated(file: Path, name: str, catalog: Catalog) -> Iterator[Given]:
    """Yield the values of a file of another system; those for unknown keys are marked unused."""
    origin = str(file)
    translation = catalog.formats.read(name, read_bytes(file, origin), origin)
    unused = dict(translation.unused)
    for each in translation.values:
        section, _, key = each.target.rpartition(".")
        given = Given(section or CORE, key, each.value, f"{origin} ({', '.join(each.keys)})")
        if catalog.knows(given):
            yield given
        else:
            why = f": {effective.no_section(given.section, catalog)}"
            if given.section in catalog.classes:
                why = " is not a setting of the plugin that is installed"
            unused |= dict.fromkeys(each.keys, f"{given.dotted}{why}")
    for key, why in unused.items():
        yield Given(CORE, key, None, origin, unused=why)


def _merged(
    sources: Iterable[Iterable[Given]], catalog: Catalog, *, tolerate_missing: bool
) -> tuple[Chosen, Mapping[str, str]]:
    """Merge ``sources``, the strongest first; an unknown key is an error in any of them.

    :returns: the winning values, and the keys without effect, with the reason
    """
    chosen: Chosen = {name: {} for name in catalog.classes}
    unused: dict[str, str] = {}
    for given in chain.from_iterable(sources):
        known = given.section in catalog.classes
        if given.unused:
            unused[given.dotted] = f"{given.origin}: {given.unused}"
        elif catalog.knows(given):
            chosen[given.section].setdefault(given.key, given)
        elif tolerate_missing and not known:
            note = f"{given.origin}: {effective.no_section(given.section, catalog)}"
            unused.setdefault(given.dotted, note)
        elif given.key or not known:  # an empty table of a known section sets nothing
            raise effective.unknown_key_error(given, catalog)
    return chosen, unused


def _effective(catalog: Catalog, chosen: Chosen, unused: Mapping[str, str]) -> effective.Settings:
    """Build the sections that are set, and the core's."""
    classes = catalog.classes
    built = {}
    for name, givens in chosen.items():
        if givens or name == CORE:
            with catalog.blaming(name, "the settings"):
                built[name] = build(name, classes[name], givens)
    origins = effective.Origins(
        (dotted(name, key), given.origin)
        for name, givens in chosen.items()
        for key, given in givens.items()
    )
    core = built.pop(CORE)
    return effective.Settings(core, effective.Sections(catalog, built), origins, unused)
