"""The strategies available to one store, by kind and name; immutable after open.

A name is also the name of a settings section, so names are unique across all kinds. The hooks that
offer strategies are called once. Each strategy is checked against its Protocol: ``isinstance``
checks only names of methods, :func:`check_object` also that each accepts the Protocol's arguments,
by position and by name, and is not async.

:class:`Events` delivers lifecycle events to each plugin separately. If an observer raises, the
error is logged with its plugin's name; the other observers and the store continue. Two events can
be refused: an exception in ``store_opening`` forbids the opening, and one in ``segment_deleting``
keeps the segment. Plugins are called in pluggy's order: the last registered first, preceded by
those with ``tryfirst``.
"""

from __future__ import annotations

import inspect
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, MethodType, ModuleType
from typing import Any, Final, NamedTuple, get_type_hints

import attrs
import pluggy

from lakelog.arguments import wrong_type
from lakelog.errors import (
    BadStrategy,
    DuplicateName,
    LakelogError,
    ReadFailed,
    StoreError,
    raised_by_handler,
)
from lakelog.files.filesystem import RealFileSystem
from lakelog.format import layout
from lakelog.hooks import PROTOCOLS, Context, DiskState, Factory, Kind, NoSettings
from lakelog.hooks.dispatching import KeyIndex, QueueReader
from lakelog.hooks.kinds import StoreSettings
from lakelog.registry import loading
from lakelog.settings.effective import Catalog, Formats, Settings, required

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_TAKEN: Final = {"auto", *attrs.fields_dict(StoreSettings)}
"""Names that the core's own settings use."""


class Offered(NamedTuple):
    """A factory, and the plugin that offers it."""

    factory: Factory
    source: loading.PluginSource

    def settings_class(self) -> type[Any]:
        """The class of its section, imported if the factory gives only its place.

        Raises :class:`~lakelog.errors.BadStrategy` if it is no attrs class.
        """
        found: Any = self.factory.settings
        if isinstance(found, str):
            module, _, attribute = found.partition(":")
            try:
                found = getattr(import_module(module), attribute)
            except (AttributeError, ImportError, ValueError) as error:
                raise self.source.error(
                    f"the settings of {self.factory.name!r} cannot be imported from {found!r}: "
                    f"{error}; name the class as 'module:Class'",
                    BadStrategy,
                ) from error
        if not (isinstance(found, type) and attrs.has(found)):
            raise self.source.error(
                f"the settings of {self.factory.name!r} are {_shown(found)}, which is no attrs "
                "class; use @attrs.frozen, or lakelog.hooks.NoSettings",
                BadStrategy,
            )
        return found

    @contextmanager
    def blaming(
        self, call: str, context: Context | None = None, *, files: bool = False
    ) -> Iterator[None]:
        """See :meth:`Registry.blaming`."""
        name, kind = self.factory.name, loading.kind_text(self.factory.kind)
        what = f"{call} of the {kind} {name!r}"
        try:
            yield
        except LakelogError as error:
            error.add_note(f"raised by plugin {self.source.name!r}: {what}")
            raise
        except Exception as error:
            if files and isinstance(error, OSError) and error.errno is not None:
                raise
            if raised_by_handler(error):
                raise
            if isinstance(error, OSError) and error.filename is not None:
                # a file that the system does not let it use is not a fault of the plugin
                where = f"{error.strerror} (plugin {self.source.name!r}, {what})"
                if context is not None and context.read_only:
                    raise ReadFailed(where, path=error.filename, error=error) from error
                raise StoreError(where, path=error.filename) from error
            raise self.source.error(
                f"{what} failed with {type(error).__name__}: {error}"
            ) from error


_RESERVED: Final = frozenset(
    {layout.COMMITLOG_DIR, layout.CONFIG_DIR, layout.OWN_DIR, layout.CHECKPOINT_FILE}
    | {layout.ABORT_FILE, layout.ABORT_BACKUP_FILE, layout.LOCK_FILE}
    | {"timerwheel", "timerlog", "compaction", "transaction", "rocksdbstore"}
)
"""Names in a store directory of the core and of RocketMQ; those below are for dispatchers of one
kind."""
_OF_KINDS: Final = {
    layout.CONSUMEQUEUE_DIR: QueueReader,
    layout.CONSUMEQUEUE_EXT_DIR: QueueReader,
    layout.BATCHCONSUMEQUEUE_DIR: QueueReader,
    layout.INDEX_DIR: KeyIndex,
}


def directories_problem(dispatcher: Any) -> str | None:
    """Describe the first folder that a dispatcher must not have; ``None`` if all may be its own.

    A rebuild removes them, so they must hold nothing else.
    """
    directories: Any = dispatcher.directories
    if isinstance(directories, str) or not isinstance(directories, Sequence):
        return f"its directories are {_shown(directories)}; give a list of names of folders"
    for each in directories:
        if not isinstance(each, str) or not each.isprintable() or set(each) & set("/\\"):
            problem = "is no plain name"
        elif each in {"", os.curdir, os.pardir}:
            problem = "is not inside of the store"
        elif each in _RESERVED:
            problem = "is not its own: it belongs to the store"
        elif each in _OF_KINDS and not isinstance(dispatcher, _OF_KINDS[each]):
            problem = f"belongs to RocketMQ's files, and it is no {_OF_KINDS[each].__name__}"
        else:
            continue
        return (
            f"its folder {each!r} {problem}; a rebuild removes the folders of a dispatcher: give "
            "one plain name of a folder in the store that nothing else uses"
        )
    return None


class SettingsClasses(Mapping[str, type[Any]]):
    """The settings class of every strategy, by name; a lookup may import it."""

    def __init__(self, offered: Mapping[str, Offered]) -> None:
        self._offered = offered

    def __getitem__(self, name: str) -> type[Any]:
        return self._offered[name].settings_class()

    def __iter__(self) -> Iterator[str]:
        return iter(self._offered)

    def __len__(self) -> int:
        return len(self._offered)


def collect(plugged: loading.Plugged) -> dict[str, Offered]:
    """All factories of the plugins, by name.

    Raises :class:`~lakelog.errors.PluginError` if a hook fails,
    :class:`~lakelog.errors.BadStrategy` for an invalid factory, and
    :class:`~lakelog.errors.DuplicateName`.
    """
    found: dict[str, Offered] = {}
    for kind in Kind:
        for source, caller in plugged.callers(kind.value):
            for factory in _factories(source, caller, kind):
                if factory.name in found:
                    raise _duplicate(found[factory.name], factory, source)
                found[factory.name] = Offered(factory, source)
    return found


def _duplicate(first: Offered, second: Factory, source: loading.PluginSource) -> DuplicateName:
    package = first.source.distribution
    owner = f"plugin {first.source.name!r}" + (f" of {package}" if package else "")
    return source.error(
        f"it offers the {loading.kind_text(second.kind)} {second.name!r}, but {owner} offers "
        f"the {loading.kind_text(first.factory.kind)} {second.name!r} already; names are unique "
        "across all kinds: uninstall one of them, or switch one off with LAKELOG_DISABLE_PLUGINS",
        DuplicateName,
    )


def _factories(
    source: loading.PluginSource, caller: pluggy.HookCaller, kind: Kind
) -> list[Factory]:
    hook = kind.value
    try:
        results: list[Any] = caller()
    except Exception as error:
        if raised_by_handler(error):
            raise
        raise source.error(f"{hook} failed with {type(error).__name__}: {error}") from error
    if not results:
        what = f"{hook} returned None; return a list of factories (it may be empty)"
        raise source.error(what, BadStrategy)
    factories: list[Factory] = []
    for result in results:
        if isinstance(result, str | Factory) or not isinstance(result, Sequence):
            what = f"{hook} returned {_shown(result)}; return a list of factories"
            raise source.error(what, BadStrategy)
        factories += result
    for each in factories:
        problem = _problem(each, kind)
        if problem:
            raise source.error(problem, BadStrategy)
        if isinstance(each.settings, str) and kind is not Kind.SETTINGS_FORMAT:
            continue  # imported when it is needed
        if attrs.fields(Offered(each, source).settings_class()) and kind is Kind.SETTINGS_FORMAT:
            raise source.error(
                f"the settings format {each.name!r} has settings, but it is used before any are "
                "read; use lakelog.hooks.NoSettings",
                BadStrategy,
            )
    return factories


def _problem(factory: Any, kind: Kind) -> str | None:
    """Describe the mistake in an item that the hook of ``kind`` returned, if any."""
    if not isinstance(factory, Factory):
        return f"{kind.value} returned a list with {_shown(factory)}; return Factory objects"
    name: Any = factory.name
    if factory.kind is not kind:
        return f"{kind.value} returned {name!r}, whose kind is {factory.kind}"
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return (
            f"it offers the name {name!r}; a name is lower-case words of letters and digits "
            "with single hyphens between them"
        )
    if name.replace("-", "_") in _TAKEN:
        return f"it offers the name {name!r}, which the core's own settings use"
    if not callable(factory.make):
        return f"make of {name!r} is {_shown(factory.make)}, which cannot be called"
    return None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def check_object(obj: object, protocol: type[Any]) -> str | None:
    """Describe why ``obj`` does not implement ``protocol``; ``None`` if it does."""
    if obj is None:
        return f"it is None; expected a {protocol.__name__}"
    return "; ".join((*_attributes(obj, protocol), *_methods(obj, protocol))) or None


def _attributes(obj: object, protocol: type[Any]) -> Iterator[str]:
    known = _hints(protocol)  # type: ignore[arg-type]  # classes are hashable; mypy doubts it of type[Any]
    for name, kind in known.items():
        if not hasattr(obj, name):
            yield f"it lacks the attribute {name}: {kind.__name__}"
        elif isinstance(kind, type) and not isinstance(getattr(obj, name), kind):
            yield f"its attribute {name} is {getattr(obj, name)!r}, not a {kind.__name__}"


def _methods(obj: object, protocol: type[Any]) -> Iterator[str]:
    for name, declared in _declared(protocol):  # type: ignore[arg-type]  # classes are hashable; mypy doubts it of type[Any]
        method = getattr(obj, name, None)
        function = getattr(method, "__func__", None)
        if isinstance(method, BuiltinFunctionType):  # a method of a compiled object, or a function
            function = getattr(type(method.__self__), method.__name__, None)
        is_bound = isinstance(function, FunctionType | BuiltinFunctionType | MethodDescriptorType)
        # Results for plain methods, classes and functions of compiled modules are cached: all
        # objects of a class share them, and inspect parses signatures of compiled code each time.
        lasts = is_bound or isinstance(getattr(method, "__self__", method), type | ModuleType)
        fits = lasts and _fits(function if is_bound else method, declared, is_bound=is_bound)
        if not fits and (problem := _method(method, declared)):
            yield f"{problem}; expected {_expected(declared)}"


@lru_cache(maxsize=64)
def _hints(protocol: type[Any]) -> Mapping[str, Any]:
    return get_type_hints(protocol)


@lru_cache(maxsize=64)
def _declared(protocol: type[Any]) -> tuple[tuple[str, Callable[..., Any]], ...]:
    found = inspect.getmembers(protocol, inspect.isfunction)
    return tuple(each for each in found if not each[0].startswith("_"))


@lru_cache(maxsize=512)
def _fits(function: Any, declared: Callable[..., Any], *, is_bound: bool) -> bool:
    # Equal names fit. Signatures of inspect would take a twentieth of a first open.
    names, by_name_only = _parameters(function, is_bound)
    wanted, may_be = _parameters(declared, True)
    if names is not None and names == wanted and by_name_only <= may_be:
        return True
    return _method(MethodType(function, object()) if is_bound else function, declared) is None


_NO_PLAIN_FUNCTION: Final = (
    inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
)


def _parameters(function: Any, is_bound: bool) -> tuple[Sequence[str] | None, int]:
    """Names of the parameters without ``self``, and the number of the last that are keyword-only.

    ``None`` if some are positional-only or open, or if none are known.
    """
    if isinstance(function, FunctionType):
        code = function.__code__
        names = code.co_varnames[is_bound : code.co_argcount + code.co_kwonlyargcount]
        is_other = code.co_flags & _NO_PLAIN_FUNCTION or code.co_posonlyargcount
        return None if is_other else names, code.co_kwonlyargcount
    text = getattr(function, "__text_signature__", None)  # of compiled code
    return text and tuple(name for name in text[1:-1].split(", ") if name != "$self"), 0


def _method(method: object, declared: Callable[..., Any]) -> str | None:
    name = declared.__name__
    if method is None:
        return f"it lacks the method {name}"
    if not callable(method):
        return f"its {name} is no method, but {method!r}"
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        return f"its method {name} is async, and would never run"
    return (
        None
        if _can_be_called(method, declared)
        else f"its method {name} is {_signature_text(method)}"
    )


def _can_be_called(method: Callable[..., Any], declared: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):
        return True  # built-in code need not have a signature
    names = list(inspect.signature(declared).parameters)[1:]
    try:
        signature.bind(*names)
        signature.bind(**dict.fromkeys(names))
    except TypeError:
        return False
    return True


def _signature_text(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    return f"{name}{inspect.signature(function)}"


def _expected(declared: Callable[..., Any]) -> str:
    """The declaration without ``self``."""
    signature = inspect.signature(declared)
    parameters = list(signature.parameters.values())[1:]
    return f"{declared.__name__}{signature.replace(parameters=parameters)}"


_LOG: Final = logging.getLogger("lakelog")


class Events:
    """One method per lifecycle event; see :class:`lakelog.hooks.hookspecs.Hooks`."""

    def __init__(self, plugged: loading.Plugged) -> None:
        self._plugged = plugged

    def store_opening(self, path: Path, read_only: bool) -> None:
        """Announce the opening, which a plugin may forbid.

        Raises :class:`~lakelog.errors.PluginError`, with its cause, if a plugin forbids it.
        """
        refusal = self._ask("lakelog_store_opening", path=path, read_only=read_only)
        if refusal:
            source, error = refusal
            what = f"it refuses to open {path}: {type(error).__name__}: {error}"
            raise source.error(what) from error

    def store_recovered(self, path: Path, report: object) -> None:
        """Announce the end of recovery."""
        self._notify("lakelog_store_recovered", path=path, report=report)

    def segment_rolled(self, path: Path, start_offset: int) -> None:
        """Announce that the log continues in the segment ``path``."""
        self._notify("lakelog_segment_rolled", path=path, start_offset=start_offset)

    def segment_deleting(self, path: Path, start_offset: int) -> str | None:
        """Announce the deletion of a segment; return the refusing plugin and its reason, if any.

        Any exception of a plugin keeps the segment: deletion cannot be undone.
        """
        refusal = self._ask("lakelog_segment_deleting", path=path, start_offset=start_offset)
        if refusal is None:
            return None
        source, error = refusal
        return f"plugin {source.name!r} vetoed it: {type(error).__name__}: {error}"

    def segment_deleted(self, path: Path, start_offset: int) -> None:
        """Announce that a segment was deleted."""
        self._notify("lakelog_segment_deleted", path=path, start_offset=start_offset)

    def disk_pressure(self, path: Path, state: DiskState) -> None:
        """Announce a new state of the disks."""
        self._notify("lakelog_disk_pressure", path=path, state=state)

    def store_failed(self, path: Path, cause: BaseException) -> None:
        """Announce a failed write or sync."""
        self._notify("lakelog_store_failed", path=path, cause=cause)

    def store_closed(self, path: Path) -> None:
        """Announce that a store was closed."""
        self._notify("lakelog_store_closed", path=path)

    def cli_commands(self, app: Any, of: str | None = None) -> None:
        """Let plugins, or the one called ``of``, add commands to ``app``, a Typer application."""
        self._notify("lakelog_cli_commands", of, app=app)

    def _ask(self, hook: str, **arguments: object) -> tuple[loading.PluginSource, Exception] | None:
        """The first refusal; the plugins behind it are not called."""
        return next(self._failures(hook, arguments), None)

    def _notify(self, hook: str, of: str | None = None, **arguments: object) -> None:
        for source, error in self._failures(hook, arguments, of):
            what = f"plugin {source.name!r} failed in {hook}; the store goes on: {error}"
            _LOG.error("%s", what, exc_info=error)

    def _failures(
        self, hook: str, arguments: Mapping[str, object], of: str | None = None
    ) -> Iterator[tuple[loading.PluginSource, Exception]]:
        for source, caller in self._plugged.callers(hook):
            try:
                if of in {None, source.name}:
                    caller(**arguments)
            except Exception as error:
                if raised_by_handler(error):
                    raise
                yield source, error  # any exception is a veto; observers are isolated


class Registry(NamedTuple):
    """The strategies of one store's plugins, by name.

    :ivar plugged: the plugins, with pluggy's manager
    :ivar offered: the factory of every strategy, with its plugin, by name
    :ivar events: delivers lifecycle events to plugins
    :ivar are_given: whether the plugins were given, and not those that are installed
    """

    plugged: loading.Plugged
    offered: Mapping[str, Offered]
    events: Events
    are_given: bool = False

    @classmethod
    def load(
        cls, plugins: Sequence[object] | Registry | None, environ: Mapping[str, str]
    ) -> Registry:
        """Load and check plugins; accesses no file of a store.

        :param plugins: plugins to use beside the core's own and, if installed, ``queues``
            and ``retention``; ``None`` uses all installed plugins; a registry is
            returned unchanged
        :param environ: its ``LAKELOG_DISABLE_PLUGINS`` names plugins to switch off

        Raises :class:`~lakelog.errors.PluginError`, and ``TypeError`` for a wrong argument.
        """
        if isinstance(plugins, Registry):
            return plugins
        off = loading.switched_off(environ)
        if plugins is None:
            return _installed(loading.search_path(), off)
        if isinstance(plugins, str) or not isinstance(plugins, Iterable):
            raise wrong_type("plugins", plugins, "a list of modules or objects, or None for all")
        return cls._of(loading.given_sources(plugins), off, given=True)

    @classmethod
    def _of(
        cls, sources: Iterable[loading.PluginSource], off: Iterable[str], *, given: bool
    ) -> Registry:
        plugged = loading.plug_in([loading.builtin_source(), *sources], off)
        return cls(plugged, collect(plugged), Events(plugged), given)

    def sections(self) -> Mapping[str, type[Any]]:
        """The settings class of every strategy on offer, by name."""
        return SettingsClasses(self.offered)

    def installed(self, path: Path) -> Catalog:
        """The sections, formats and inferring functions of all plugins, for the store ``path``."""
        kind = Kind.SETTINGS_FORMAT
        context = Context(path, StoreSettings(), RealFileSystem())
        formats = Formats(
            self.names(kind),
            lambda name: self.make(kind, name, NoSettings(), context),
            lambda name, what: self.fault(kind, name, BadStrategy)(what),
        )
        infer = {name: each.factory.infer for name, each in self.offered.items()}
        inferring = {name: it for name, it in infer.items() if it}
        return Catalog(self.sections(), formats, inferring, self.blaming)

    def names(self, kind: Kind) -> tuple[str, ...]:
        """The names of all strategies of a kind, sorted."""
        return tuple(sorted(name for name, found in self._kinds().items() if found is kind))

    def factory(self, kind: Kind, name: str) -> Factory:
        """The factory of a kind and name; raises :class:`~lakelog.errors.MissingPlugin`."""
        return self._offered(kind, name).factory

    def package(self, kind: Kind, name: str) -> loading.Distribution | None:
        """The package that provides a strategy, if known; raises like :meth:`factory`."""
        return self._offered(kind, name).source.package

    def make(self, kind: Kind, name: str, settings: object, context: Context) -> Any:
        """Build a strategy, and check that it implements its Protocol.

        Errors are those of :meth:`blaming`; an ``OSError`` without a file is a
        :class:`~lakelog.errors.PluginError`, too. Also raises
        :class:`~lakelog.errors.MissingPlugin` and :class:`~lakelog.errors.BadStrategy`.
        """
        offered = self._offered(kind, name)
        with offered.blaming("make", context):
            made = offered.factory.make(settings, context)
        with offered.blaming("an attribute", context):
            problem = check_object(made, PROTOCOLS[kind])
            if problem is None and kind is Kind.DISPATCHER:
                problem = directories_problem(made)
        if problem:
            raise offered.source.error(
                f"its {loading.kind_text(kind)} {name!r}: {problem}", BadStrategy
            )
        return made

    def build(self, kind: Kind, name: str | None, settings: Settings, context: Context) -> Any:
        """Build the strategy ``name`` with its section of ``settings``; ``None`` without a name.

        Raises like :meth:`make`, and :class:`~lakelog.errors.SettingsError` if a required section
        is not set.
        """
        if name is None:
            return None
        cls = self._offered(kind, name).settings_class()
        is_set = name in settings.sections or required(cls)
        return self.make(kind, name, settings.section(name) if is_set else cls(), context)

    def blaming(
        self, name: str | None, call: str, *, files: bool = False
    ) -> AbstractContextManager[None]:
        """Give errors raised inside the name of the plugin of the strategy ``name``, if it is one.

        :param call: what is called or read
        :param files: whether the caller handles errors of files, which then pass unchanged

        Errors of lakelog propagate with a note. An ``OSError`` becomes a
        :class:`~lakelog.errors.StoreError`, and any other a :class:`~lakelog.errors.PluginError`.
        """
        offered = self.offered.get(name or "")
        return nullcontext() if offered is None else offered.blaming(call, files=files)

    def fault(
        self, kind: Kind, name: str, error: type[loading.ErrorT]
    ) -> Callable[[str], loading.ErrorT]:
        """A function that builds errors about a strategy's failures after open."""
        source = self._offered(kind, name).source
        return lambda what: source.error(f"its {loading.kind_text(kind)} {name!r} {what}", error)

    def _kinds(self) -> dict[str, Kind]:
        return {name: offered.factory.kind for name, offered in self.offered.items()}

    def _offered(self, kind: Kind, name: str) -> Offered:
        offered = self.offered.get(name)
        if offered is None or offered.factory.kind is not kind:
            left_out = loading.installed_sources() if self.are_given else ()
            raise loading.missing(kind, name, self._kinds(), self.plugged.off, left_out)
        return offered


@lru_cache(maxsize=4)
def _installed(_path: object, off: frozenset[str]) -> Registry:
    """The registry of the installed plugins, kept for later opens of this process.

    :param _path: the key of the cache beside ``off``; the result of :func:`.search_path`
    """
    loading.check_metadata()
    return Registry._of(loading.installed_sources(), off, given=False)
