"""The rules that core/docs/ARCHITECTURE.md states, checked on the sources."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import attrs
import grimp
import pytest

from lakelog.hooks.hookspecs import Hooks
from lakelog.registry.loading import known_hooks
from tests.rooms import CORE, PAGE, ROOMS, ROOT, page

ROOM: Final[dict[str, str]] = {
    each: room["name"] for room in ROOMS for each in (room["name"], *room.get("also", []))
}
"""The room of each folder and module right in ``lakelog``."""
FLOOR: Final = {room["name"]: floor for floor, room in enumerate(ROOMS)}
# What a plugin may import.
PUBLIC_NAMES: Final = (
    "accelerate arguments arrow builtin errors files.filesystem files.identity format hooks "
    "lazy maintenance.pins message results runtime.signals runtime.threads"
)
PUBLIC: Final = frozenset(PUBLIC_NAMES.split())

HEAVY: Final = ("numpy", "pluggy", "typer", "rich", "lz4", "zstandard")
MOST_FUNCTION_LINES: Final = 60
SOURCE_FOLDERS: Final = ("core/src", "core/tests", "plugins", "contrib", "tests", "examples")

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
    "lakelog_telemetry": {"lakelog_daemon"},
    "lakelog_pytest": {"lakelog_testing"},
    "lakelog_queues": {"lakelog_rocketmq"},
    "lakelog_replication": {
        *("lakelog_cli", "lakelog_daemon", "lakelog_queues", "lakelog_retention"),
        "lakelog_rocketmq",
    },
    "lakelog_spark": {"lakelog_lake"},
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

    :ivar imports: the full names of what it imports, wherever in it
    :ivar functions: each function's name, and the lines of its body without its docstring
    :ivar classes: the names of its classes
    :ivar hooks: the functions with ``@hookimpl``
    """

    imports: tuple[str, ...]
    functions: tuple[tuple[str, int], ...]
    classes: frozenset[str]
    hooks: frozenset[str]


@cache
def facts(file: Path) -> Facts:
    """Of a file, which is parsed once in a run."""
    imports: list[str] = []
    functions: list[tuple[str, int]] = []
    classes, hooks = set[str](), set[str]()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            imports += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            if (CORE.parent / node.module.replace(".", "/")).is_dir():  # a package of lakelog
                imports += [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                imports.append(node.module)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.append((node.name, _length(node)))
            if "hookimpl" in map(ast.unparse, node.decorator_list):
                hooks.add(node.name)
        elif isinstance(node, ast.ClassDef):
            classes.add(node.name)
    return Facts(tuple(imports), tuple(functions), frozenset(classes), frozenset(hooks))


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
    own = {CORE / "runtime" / name for name in ("threads.py", "signals.py")}
    sources = [*CORE.rglob("*.py"), *ROOT.glob("plugins/*/src/**/*.py")]
    wrong = [
        str(each.relative_to(ROOT))
        for each in sources
        if each not in own
        and "lakelog_testing" not in each.parts
        and STARTS.search(text := each.read_text())
        and "from lakelog.runtime.threads import" not in text
    ]
    assert wrong == []


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


def test_the_walks_name_files_that_exist_and_have_twelve_steps() -> None:
    _, _, section = PAGE.read_text().partition("## Four walks")
    section = section.partition("\n## ")[0]
    steps = re.findall(r"^(\d+)\. (.*)$", section, re.MULTILINE)
    assert [int(number) for number, _ in steps] == [*range(1, 13)] * 4
    sources = [CORE, *ROOT.glob("plugins/*/src")]
    named = {name for _, step in steps for name in re.findall(r"`([\w/]+/\w+\.py)`", step)}
    assert [each for each in named if not any((at / each).is_file() for at in sources)] == []


def test_the_built_in_strategies_are_reached_through_the_registry_only() -> None:
    named = [file for file in CORE.rglob("*.py") if '"lakelog.builtin' in file.read_text()]
    assert named == [CORE / "registry" / "loading.py"]


def test_the_core_imports_no_plugin() -> None:
    public = ("__init__.py", "aio.py", "arrow.py", "store/open.py")
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


def plugin_sources() -> list[Path]:
    """Every module of every plugin in this repository."""
    return sorted(each for folder in PLUGINS for each in (ROOT / folder).glob("*/src/**/*.py"))


def test_plugins_import_public_names_only_and_no_other_plugin() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in plugin_sources()
        for own in [file.relative_to(ROOT).parts[3]]
        for name in facts(file).imports
        if (is_plugin(name) and name.split(".")[0] not in {own, *BUILT_ON.get(own, ())})
        or (own not in EXTENSIONS and name.split(".")[0] == "lakelog" and not is_public(name))
    ]
    assert wrong == []


def test_rooms_of_the_lake_import_one_way_and_spark_by_an_entry_point_only() -> None:
    pytest.importorskip("lakelog_lake")
    sources = (ROOT / "plugins" / "lake" / "src").rglob("*.py")
    names = {name.split(".")[0] for file in sources for name in facts(file).imports}
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
    folders = ("core/src", "plugins/*/src", "contrib/*/src", "examples")
    files = [
        each for folder in folders for root in ROOT.glob(folder) for each in root.rglob("*.py")
    ]
    implemented = {
        hook for each in files if "lakelog_testing" not in each.parts for hook in facts(each).hooks
    }
    assert known_hooks().keys() - implemented == set()
    page = (ROOT / "core" / "docs" / "reference" / "hooks.md").read_text()
    assert [each for each in known_hooks() if not inspect.getdoc(getattr(Hooks, each))] == []
    assert [each for each in known_hooks() if f"| `{each}` |" not in page] == []


# --- files ---


def test_no_function_is_long() -> None:
    long = {
        f"{file.relative_to(ROOT)}: {name}": lines
        for file in [*CORE.rglob("*.py"), *plugin_sources()]
        for name, lines in facts(file).functions
        if lines > MOST_FUNCTION_LINES
    }
    assert long == {}


def test_no_file_names_a_registry_or_a_place_on_one_machine() -> None:
    found = []
    for file in checked_files():
        if file == Path(__file__) or b"\x00" in (data := file.read_bytes()):
            continue
        for number, line in enumerate(data.decode(errors="replace").splitlines(), 1):
            if FORBIDDEN.search(line):
                found.append(f"{file.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert found == []


def test_every_silenced_check_says_why_on_its_line() -> None:
    silenced = re.compile(r"# (?:noqa|type: ignore|fmt: \w+)\b")
    argued = re.compile(r"# (?:noqa: [A-Z0-9, ]+|type: ignore\[[a-z, -]+\]|fmt: skip)  # \w")
    rust = [*(ROOT / "plugins/native/rust").glob("*.rs")]
    python = [each for each in checked_files() if each.suffix == ".py" and each != Path(__file__)]
    mute = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in (*python, *rust)
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if (file.suffix == ".py" and silenced.search(line) and not argued.search(line))
        or (file.suffix == ".rs" and "#[allow(" in line and "] // " not in line)
    ]
    assert mute == []


def test_class_names_are_unique() -> None:
    places: dict[str, set[Path]] = {}
    for file in (*CORE.rglob("*.py"), *plugin_sources()):
        for name in facts(file).classes:
            if not name.startswith("_"):
                places.setdefault(name, set()).add(file)
    twice = {name: sorted(map(str, found)) for name, found in places.items() if len(found) > 1}
    assert twice == {}
