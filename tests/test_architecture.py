"""The rules that core/docs/ARCHITECTURE.md states, checked on the sources."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import attrs
import grimp
import pytest

from lakelog.hooks.hookspecs import Hooks
from lakelog.registry.loading import known_hooks
from tests.rooms import CORE, PAGE, PLAN, ROOMS, ROOT, page

ROOM: Final[dict[str, str]] = {
    each: room["name"] for room in ROOMS for each in (room["name"], *room.get("also", []))
}
"""The room of each folder and module right in ``lakelog``."""
FLOOR: Final = {room["name"]: floor for floor, room in enumerate(ROOMS)}
# What a plugin may import.
PUBLIC_NAMES: Final = (
    "accelerate arguments arrow builtin errors files.filesystem files.identity format hooks lazy "
    "log.scan log.sources maintenance.pins message results runtime.forks "
    "runtime.locks runtime.threads times"
)
PUBLIC: Final = frozenset(PUBLIC_NAMES.split())

HEAVY: Final = ("numpy", "pluggy", "typer", "rich", "lz4", "zstandard")
MOST_FUNCTION_LINES: Final = 60
LONGEST_PAGE: Final = 250
SMALL_LINES: Final = 120
FUNCTION: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
PLUGINS: Final = ("plugins", "contrib")
EXTENSIONS: Final = {
    *("lakelog_cli", "lakelog_daemon", "lakelog_doctor", "lakelog_queues", "lakelog_retention"),
    "lakelog_testing",
}
"""Distributions of lakelog itself, of the core's exact version: they may import all of the core."""
BUILT_ON: Final = {
    "lakelog_broker": {
        *("lakelog_cli", "lakelog_daemon", "lakelog_queues", "lakelog_retention"),
        "lakelog_rocketmq",
    },
    "lakelog_cli": {"lakelog_daemon", "lakelog_doctor", "lakelog_queues", "lakelog_retention"},
    "lakelog_daemon": {"lakelog_retention"},
    "lakelog_doctor": {"lakelog_queues"},
    "lakelog_lake": {"lakelog_cli", "lakelog_daemon", "lakelog_queues", "lakelog_retention"},
    "lakelog_telemetry": {"lakelog_cli", "lakelog_daemon"},
    "lakelog_pytest": {"lakelog_testing"},
    "lakelog_queues": {"lakelog_rocketmq"},
    "lakelog_replication": {
        *("lakelog_cli", "lakelog_daemon", "lakelog_queues", "lakelog_retention"),
        "lakelog_rocketmq",
    },
    "lakelog_spark": {"lakelog_archive", "lakelog_lake"},
    "lakelog_testing": {"lakelog_doctor", "lakelog_queues"},
}
"""Packages that may import other ones than the core."""
LAKE_ROOMS: Final = (
    *("errors", "engine_provider", "log", "reading", "tables", "bodies", "tasks", "sinks"),
    *("landing", "verify", "maintenance", "api", "commands", "follower", "plugin"),
)
"""Of ``lakelog_lake``, from the bottom up."""

# No machine's paths, no registry's host: an installation must work behind any mirror.
FORBIDDEN: Final = re.compile(
    r"(?<![\w.\$}/-])/(?:work|root)/|/(?:home|Users)/[a-z]\w*/"
    r"|https?://(?!maven\.apache\.org/POM/)[^\s\"'<>)]*(?:pypi|pythonhosted|maven|sonatype|proxy\.golang|registry\.npmjs)"
    r"|repo1?\.(?:maven|apache)\.|--(?:extra-)?index-url[ =]http",
    re.IGNORECASE,
)


@attrs.frozen
class Facts:
    """What the syntax tree of a file has; the tree itself is large, and not kept.

    :ivar text: the file
    :ivar imports: the full names of what it imports, wherever in it
    :ivar functions: each function's name, and the lines of its body without its docstring
    :ivar classes: the names of the methods and of the bases of each of its classes
    :ivar hooks: the functions with ``@hookimpl``
    :ivar is_facade: whether it has imports, a docstring and ``__all__`` only
    """

    text: str
    imports: tuple[str, ...]
    functions: tuple[tuple[str, int], ...]
    classes: Mapping[str, tuple[frozenset[str], tuple[str, ...]]]
    hooks: frozenset[str]
    is_facade: bool


@cache
def facts(file: Path) -> Facts:
    """Of a file, which is parsed once in a run."""
    text = text_of(file)
    tree = ast.parse(text)
    imports: list[str] = []
    functions: list[tuple[str, int]] = []
    classes: dict[str, tuple[frozenset[str], tuple[str, ...]]] = {}
    hooks = set[str]()
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            imports += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module in packages():
                imports += [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                imports.append(node.module)
        elif isinstance(node, FUNCTION):
            functions.append((node.name, _length(node)))
            if "hookimpl" in map(ast.unparse, node.decorator_list):
                hooks.add(node.name)
        elif isinstance(node, ast.ClassDef):
            bases = (ast.unparse(each).split("[")[0] for each in node.bases)
            methods = frozenset(each.name for each in node.body if isinstance(each, FUNCTION))
            classes[node.name] = methods, tuple(each.rpartition(".")[2] for each in bases)
    is_facade = all(map(_is_of_a_facade, tree.body))
    return Facts(text, tuple(imports), tuple(functions), classes, frozenset(hooks), is_facade)


@cache
def text_of(file: Path) -> str:
    """Of a file, which is read once in a run."""
    return file.read_text(errors="replace")


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Every statement at any depth; not the expressions, which are most of a tree."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield child
            yield from _statements(child)


def _is_of_a_facade(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__")
    )


@cache
def sources() -> Mapping[str, Path]:
    """Every module of the core and of all plugins, by its full name; packages by theirs."""
    found = {}
    for folder in (CORE.parent, *(ROOT / each for each in PLUGINS)):
        for file in sorted(folder.rglob("*.py")):
            parts = file.relative_to(ROOT).parts
            if "src" in parts and "tests" not in parts:
                name = ".".join(parts[parts.index("src") + 1 :]).removesuffix(".py")
                found[name.removesuffix(".__init__")] = file
    return found


@cache
def packages() -> frozenset[str]:
    """Of the modules, those that are folders."""
    return frozenset(name for name, file in sources().items() if file.name == "__init__.py")


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function's body without its docstring."""
    body = function.body[ast.get_docstring(function, clean=False) is not None :]
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


@cache
def graph(*, at_run_time: bool, package: str = "lakelog") -> Mapping[str, frozenset[str]]:
    """What each module of a package imports, imports inside of functions included.

    :param at_run_time: without what only type checkers import
    """
    built = grimp.build_graph(package, exclude_type_checking_imports=at_run_time, cache_dir=None)
    return {
        module: frozenset(built.find_modules_directly_imported_by(module))
        for module in built.modules
    }


def below(imports: Mapping[str, frozenset[str]], start: str) -> set[str]:
    """Everything that ``start`` imports, directly or not."""
    found, waiting = set[str](), [start]
    while waiting:
        new = imports.get(waiting.pop(), frozenset()) - found
        found |= new
        waiting += new
    return found


def cycles(imports: Mapping[str, frozenset[str]]) -> set[frozenset[str]]:
    """Modules that import one another, in whatever number of steps."""
    reached = {module: below(imports, module) for module in imports}
    return {
        frozenset(other for other in reached[module] if module in reached[other])
        for module in imports
        if module in reached[module]
    }


def part(module: str) -> str:
    return [*module.split("."), ""][1]


def room(module: str) -> str:
    return ROOM.get(part(module), part(module))


def floor(module: str) -> int:
    return FLOOR[room(module)]


def checked_files() -> list[Path]:
    """What is in git, or would be after ``git add .``."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("no git repository here")
    files = (ROOT / name for name in done.stdout.split("\0") if name)
    return [file for file in files if file.is_file() and not file.is_symlink()]


# --- threads ---

STARTS: Final = re.compile(
    r"\b(?:Thread|Timer)\(|\bThreadPoolExecutor\(|\bto_thread\(|run_in_executor|start_new_thread\("
)


def test_threads_are_started_where_a_failure_is_an_error_of_lakelog() -> None:
    own = {CORE / name for name in ("lazy.py", "runtime/threads.py", "runtime/signals.py")}
    wrong = [
        name
        for name, file in sources().items()
        if file not in own
        and not name.startswith("lakelog_testing")
        and "lakelog.runtime.threads" not in facts(file).imports
        and STARTS.search(facts(file).text)
    ]
    assert wrong == []


LOCKS: Final = re.compile(
    r"^ *from (?:threading|_thread|concurrent\.futures) import .*"
    r"\b(?:R?Lock|Condition|Event|\w*Semaphore|Barrier|ThreadPoolExecutor|allocate_lock)\b"
    r"|\b(?:threading|futures)\."
    r"(?:R?Lock|Condition|Event|\w*Semaphore|Barrier|ThreadPoolExecutor)\b(?!`)",
    re.MULTILINE,
)
SAFE: Final = (
    "lakelog",
    *(f"lakelog_{each}" for each in ("queues", "flush", "writers", "hash_index", "native")),
)
"""Packages in which no exception of a signal handler, and no finalizer, leaves a lock acquired."""
KEEP_LOCKS: Final = {
    "lakelog.lazy": "one thread acquires it, another releases it, and no other one knows it",
    "lakelog.runtime.locks": "what replaces them is made of them",
    "lakelog.runtime.threads": "Thread.start waits for an Event, but never in the main thread",
    "lakelog.processes.append_section": "a fence: nothing else has the lock",
    "lakelog.processes.positions": "a fence: nothing else has the lock",
    "lakelog_flush.waiter": "at which one thread sleeps until another releases it",
    "lakelog_queues.groups.pool": "the type of an argument: the caller's event",
    "lakelog_queues.store": "the type of an argument: the caller's event",
}


def test_no_lock_of_the_standard_library_is_left_acquired() -> None:
    """They stay acquired if a signal handler raises, and a finalizer waits for its own thread."""
    found = {
        name
        for name, file in sources().items()
        if name.partition(".")[0] in SAFE and LOCKS.search(facts(file).text)
    }
    assert found == set(KEEP_LOCKS)


OTHERWISE: Final = {
    "lakelog.log.appender": "an outcome's error asks it",
    "lakelog_spark.sessions": "it knows the errors of a lost JVM, and raises others as they are",
}
"""Modules with another way to tell a signal handler's exception from that of the called code."""


def test_an_exception_of_a_signal_handler_is_no_verdict_on_what_it_interrupts() -> None:
    """A body is no wrong data, and a table not out of reach, because a time limit ends a call."""
    found = set[str]()
    for name, file in sources().items():
        text = facts(file).text
        for each in ast.walk(ast.parse(text)) if "except Exception" in text else ():
            if (
                isinstance(each, ast.ExceptHandler)
                and ast.unparse(each.type or each) == "Exception"
            ):
                others = [one for one in ast.walk(each) if isinstance(one, ast.Raise) and one.exc]
                if others and "raised_by_handler(" not in ast.unparse(each):
                    found.add(name)
    assert {name for name in found if not name.startswith("lakelog_testing")} == set(OTHERWISE)


# --- the core's own modules ---


@pytest.mark.parametrize("package", ["lakelog", "lakelog_lake", "lakelog_spark"])
def test_no_modules_of_a_package_import_one_another(package: str) -> None:
    pytest.importorskip(package)
    assert cycles(graph(at_run_time=True, package=package)) == set()
    for cycle in cycles(graph(at_run_time=False)):  # annotations may, inside of one room
        assert len({room(module) for module in cycle}) == 1, sorted(cycle)


def test_every_module_has_a_room() -> None:
    parts = {part(module) for module in graph(at_run_time=True)} - {"", "__main__"}
    assert parts == ROOM.keys(), "core/rooms.toml lists the rooms"


def test_imports_point_down_annotations_included() -> None:
    upwards = {
        (module, imported)
        for module, imports in graph(at_run_time=False).items()
        for imported in imports
        if part(module) in ROOM and part(imported) in ROOM and floor(imported) > floor(module)
    }
    assert upwards == set()


def test_no_rooms_import_one_another() -> None:
    rooms: dict[str, frozenset[str]] = {}
    for module, imports in graph(at_run_time=True).items():
        here = rooms.get(room(module), frozenset())
        rooms[room(module)] = here | {room(other) for other in imports} - {room(module)}
    assert cycles(rooms) == set()


def test_the_page_of_the_architecture_has_the_rooms_as_they_are() -> None:
    assert page() == PAGE.read_text(), "python -m tests.rooms writes it"


def test_the_page_has_the_way_of_a_message_and_the_places_of_twelve_changes() -> None:
    page = PAGE.read_text()
    assert page.count("\n") <= LONGEST_PAGE
    way = page.partition("## The way of a message")[2].partition("\n## ")[0]
    steps = [int(number) for number in re.findall(r"^(\d+)\. ", way, re.MULTILINE)]
    assert steps == list(range(1, 11))
    rows = page.partition("## Twelve changes")[2].strip().splitlines()[4:]
    assert len(rows) == 12
    assert all(re.search(r"`[\w/]+\.py`", row) for row in rows), "each names a file"


def test_the_built_in_strategies_are_reached_through_the_registry_only() -> None:
    named = [file for file in CORE.rglob("*.py") if '"lakelog.builtin' in facts(file).text]
    assert named == [CORE / "registry" / "loading.py"]


def test_the_core_imports_no_plugin() -> None:
    public = ("__init__.py", "aio.py", "store/open.py")
    files = {*CORE.rglob("*.py")} - {CORE / each for each in public}
    wrong = [file for file in files for name in facts(file).imports if is_plugin(name)]
    assert wrong == []


@pytest.mark.parametrize(
    "statement", ["import lakelog", "import lakelog; lakelog.Message('t', b'')"]
)
def test_an_import_of_lakelog_is_light(statement: str) -> None:
    program = f"{statement}; import sys; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


# --- plugins ---


def is_plugin(module: str) -> bool:
    return module.startswith("lakelog_")


def is_public(module: str) -> bool:
    """Whether a plugin may import ``module`` of lakelog."""
    import lakelog

    name = module.removeprefix("lakelog").removeprefix(".")
    exported = name in ("", *lakelog.__all__)
    return exported or any(name == each or name.startswith(f"{each}.") for each in PUBLIC)


def test_plugins_import_public_names_only_and_no_other_plugin() -> None:
    wrong = [
        f"{module}: {name}"
        for module, file in sources().items()
        if is_plugin(module)
        for own in [module.split(".")[0]]
        for name in facts(file).imports
        if (is_plugin(name) and name.split(".")[0] not in {own, *BUILT_ON.get(own, ())})
        or (own not in EXTENSIONS and name.split(".")[0] == "lakelog" and not is_public(name))
    ]
    assert wrong == []


def test_rooms_of_the_lake_import_one_way_and_spark_by_an_entry_point_only() -> None:
    pytest.importorskip("lakelog_lake")
    names = {
        name.split(".")[0]
        for module, file in sources().items()
        if module.startswith("lakelog_lake")
        for name in facts(file).imports
    }
    assert names.isdisjoint({"pyspark", "py4j", "lakelog_spark"})
    imports = graph(at_run_time=True, package="lakelog_lake")
    row = {name: at for at, name in enumerate(LAKE_ROOMS)}
    wrong = [
        f"{module} imports {other}"
        for module, others in imports.items()
        for other in others
        if part(module) and row.get(part(other), len(row)) > row[part(module)]
    ]
    assert sorted(wrong) == []


# --- hooks ---


def test_every_hook_is_documented_and_has_an_implementer() -> None:
    kits = "lakelog_testing"
    files = [file for name, file in sources().items() if not name.startswith(kits)]
    examples = (ROOT / "examples").rglob("*.py")
    implemented = {hook for each in (*files, *examples) for hook in facts(each).hooks}
    assert known_hooks().keys() - implemented == set()
    page = (ROOT / "core" / "docs" / "reference" / "hooks.md").read_text()
    assert [each for each in known_hooks() if not inspect.getdoc(getattr(Hooks, each))] == []
    assert [each for each in known_hooks() if f"| `{each}` |" not in page] == []


# --- files ---


def test_no_function_is_long() -> None:
    long = {
        f"{file.relative_to(ROOT)}: {name}": lines
        for file in sources().values()
        for name, lines in facts(file).functions
        if lines > MOST_FUNCTION_LINES
    }
    assert long == {}


def test_no_file_names_a_registry_or_a_place_on_one_machine() -> None:
    found = [
        f"{file.relative_to(ROOT)}: {match[0]}"
        for file in checked_files()
        if file != Path(__file__) and "\0" not in text_of(file)
        for match in FORBIDDEN.finditer(text_of(file))
    ]
    assert found == []


def test_every_silenced_check_says_why_on_its_line() -> None:
    silenced = re.compile(r"# (?:noqa|type: ignore|fmt: \w+)\b")
    argued = re.compile(r"# (?:noqa: [A-Z0-9, ]+|type: ignore\[[a-z, -]+\]|fmt: skip)  # \w")
    rust = [*(ROOT / "plugins/native/rust").glob("*.rs")]
    python = [each for each in checked_files() if each.suffix == ".py" and each != Path(__file__)]
    mute = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in (*python, *rust)
        if silenced.search(text_of(file)) or file.suffix == ".rs"
        for number, line in enumerate(text_of(file).splitlines(), 1)
        if (file.suffix == ".py" and silenced.search(line) and not argued.search(line))
        or (file.suffix == ".rs" and "#[allow(" in line and "] // " not in line)
    ]
    assert mute == []


ALLOCATES: Final = re.compile(
    r"\b(?:Vec|String|HashMap|VecDeque)::(?:with_capacity|from)\b|vec!\[|format!\("
    r"|\.(?:to_vec|to_owned|to_string|to_list|into_pyobject|collect|push|push_back|extend"
    r"|extend_from_slice|reserve|resize|insert|or_insert|or_insert_with)(?:::<[^(]*)?\("
    r"|\bPy(?:Bytes|String|List|Tuple|ByteArray|Dict)::new\("
)
"""Forms that abort the process, or panic, if there is no memory."""
AT_IMPORT: Final = {"construct.rs", "slots.rs"}


def test_compiled_code_allocates_by_one_module() -> None:
    """Other lines say that there is room already, or that the length has a bound."""
    found = [
        f"{file.name}:{number}"
        for file in (ROOT / "plugins/native/rust").glob("*.rs")
        if file.name not in {"memory.rs", *AT_IMPORT}
        for number, line in enumerate(text_of(file).partition("#[cfg(test)]")[0].splitlines(), 1)
        if ALLOCATES.search(line.partition("//")[0])
        and not line.endswith(("// there is room", "// of bounded length"))
    ]
    assert found == []


# --- modules and classes ---


def test_class_names_are_unique() -> None:
    places: dict[str, list[str]] = {}
    for module, file in sources().items():
        for name in facts(file).classes:
            if not name.startswith("_"):
                places.setdefault(name, []).append(module)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_a_module_has_more_than_imports() -> None:
    facades = {
        name
        for name, file in sources().items()
        if facts(file).is_facade and file.name != "__init__.py"
    }
    assert facades == set()


def test_a_small_module_with_one_importer_has_its_reason() -> None:
    importers: dict[str, set[str]] = {}
    for module, file in sources().items():
        for name in facts(file).imports:
            importers.setdefault(name, set()).add(module)
    small = {
        name
        for name, file in sources().items()
        if name not in packages()
        and facts(file).text.count("\n") <= SMALL_LINES
        and len(importers.get(name, set()) - {name}) == 1
    }
    assert small == PLAN["small"].keys(), "core/rooms.toml names them"


def test_a_protocol_with_one_implementer_at_most_has_its_reason() -> None:
    protocols: dict[str, set[str]] = {}
    classes: list[tuple[str, frozenset[str], tuple[str, ...]]] = []
    for module, file in sources().items():
        for name, (methods, bases) in facts(file).classes.items():
            if {"Protocol", "ABC"} & set(bases):
                protocols[f"{module}.{name}"] = {each for each in methods if each[:2] != "__"}
            elif not module.startswith(("lakelog_testing", "lakelog_pytest")):
                classes.append((name, methods, bases))
    by_name = {name: (methods, bases) for name, methods, bases in classes}

    def whole(methods: frozenset[str], bases: tuple[str, ...]) -> frozenset[str]:
        """A class's methods with those that it inherits."""
        return methods.union(*(whole(*by_name[each]) for each in bases if each in by_name))

    implemented = [whole(methods, bases) for _, methods, bases in classes]
    alone = {
        name
        for name, needed in protocols.items()
        if needed and sum(needed <= each for each in implemented) <= 1
    }
    assert alone == PLAN["protocol"].keys(), "core/rooms.toml names them"
