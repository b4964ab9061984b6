"""The program's output about itself: help, plugins, settings, and missing packages."""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from core.tests.registry.samples import Offering, Pace, factory, load
from lakelog.errors import StoreFailed
from lakelog.hookspecs import hookimpl
from lakelog.registry import Registry
from lakelog_cli.app import COMMANDS, make_app
from lakelog_cli.commands import plugins
from plugins.tools.tests.cli.conftest import Run


def test_help_tells_the_exit_codes_and_the_commands(lakelog: Run) -> None:
    done = lakelog("--help")
    assert done.returncode == 0
    for word in ("Exit codes", "init", "put", "scan", "dump", "verify", "plugins", "config"):
        assert word in done.stdout


def test_version(lakelog: Run) -> None:
    from importlib.metadata import version

    assert lakelog("--version").stdout == f"{version('lakelog-core')}\n"


def test_config_show_has_values_and_origins(lakelog: Run, store: Path) -> None:
    done = lakelog("config", "show", store, "--json", "--set", "record_crc=true")
    rows = {row["key"]: row for row in json.loads(done.stdout)["settings"]}
    assert (rows["record_crc"]["value"], rows["record_crc"]["origin"]) == (True, "argument")
    assert rows["segment_size_bytes"]["value"] == 65536
    assert rows["writer"] == {"key": "writer", "value": "file", "origin": "default"}
    assert "writer = file  (default)\n" in lakelog("config", "show", store).stdout


def test_a_settings_file_is_weaker_than_an_assignment(
    lakelog: Run, store: Path, tmp_path: Path
) -> None:
    (tmp_path / "my.toml").write_text("queues_per_topic = 7\nmax_light_queues = 8\n")
    options = ["--json", "--settings", "my.toml", "--set", "max_light_queues=9"]
    done = lakelog("config", "show", store, *options)
    rows = {row["key"]: row["value"] for row in json.loads(done.stdout)["settings"]}
    assert (rows["queues_per_topic"], rows["max_light_queues"]) == (7, 9)


def test_config_schema_is_a_schema(lakelog: Run) -> None:
    made = json.loads(lakelog("config", "schema").stdout)
    assert made["$schema"].startswith("https://json-schema.org/")
    assert {"segment_size_bytes", "file"} <= set(made["properties"])


def test_plugins_tells_what_a_store_uses(lakelog: Run, store: Path) -> None:
    done = lakelog("plugins", "--json", "--store", store, "--set", "flush=inline")
    rows = {(row["kind"], row["name"]): row for row in json.loads(done.stdout)["strategies"]}
    assert rows["flush_strategy", "inline"]["active"]
    assert not rows["flush_strategy", "none"]["active"]
    assert rows["writer", "file"]["distribution"] == "lakelog-core"
    assert rows["writer", "file"]["settings"][0]["name"] == "map_below_bytes"
    said = lakelog("plugins", "--store", store).stdout
    assert "writer file [active]" in said
    assert "plugin builtin (lakelog-core" in said


def test_the_rows_tell_what_a_strategy_is_and_what_can_be_set() -> None:
    registry = load(Offering(factory("paced", settings=Pace, summary="At your pace.")))
    document = plugins.document(registry, None)
    row = next(row for row in document["strategies"] if row["name"] == "paced")
    told = row["kind"], row["plugin"], row["summary"]
    assert told == ("flush_strategy", "offering", "At your pace.")
    assert [tuple(each.values()) for each in row["settings"]] == [
        ("target", "str", None),
        ("every", "int", "100"),
        ("labels", "list[str]", "list()"),
    ]


def test_plugins_that_are_switched_off_are_listed_without_hooks() -> None:
    registry = load(
        Offering(factory("a"), name="on"),
        Offering(factory("b"), name="off"),
        off="off",
    )
    rows = {row["name"]: row for row in plugins.document(registry, None)["plugins"]}
    assert (rows["on"]["hooks"], rows["on"]["enabled"]) == (["lakelog_flush_strategies"], True)
    assert (rows["off"]["hooks"], rows["off"]["enabled"]) == ([], False)


def test_plugins_without_a_store(lakelog: Run) -> None:
    done = lakelog("plugins", "--json")
    assert "active" not in json.loads(done.stdout)["strategies"][0]
    assert lakelog("plugins", "--set", "flush=none").returncode == 2


def python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )


IMPORTED = """
import sys
sys.argv = ["lakelog", {argument!r}]
from lakelog_cli.main import run
try:
    run()
except SystemExit:
    pass
print(*sorted({{name.partition(".")[0] for name in sys.modules}}), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("argument", "needless"),
    [
        ("--version", {"typer", "rich", "numpy", "pluggy", "psutil"}),
        ("--help", {"numpy", "pyarrow", "pyspark", "lz4"}),
    ],
)
def test_what_needs_no_store_imports_little(argument: str, needless: set[str]) -> None:
    program = IMPORTED.format(argument=argument)
    done = python(program)
    assert done.stdout
    imported = set(done.stderr.splitlines()[-1].split())
    assert "lakelog_cli" in imported
    assert imported & needless == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_has_the_first_sentence_of_each(name: str) -> None:
    """The list has copies, so that it imports no command."""
    module = importlib.import_module(f"lakelog_cli.commands.{name}")
    app = getattr(module, "app", None)
    text = app.info.help if app is not None else inspect.getdoc(getattr(module, name))
    assert text is not None
    assert " ".join(text.partition("\n\n")[0].split()) == COMMANDS[name]


def test_every_command_is_in_the_list() -> None:
    folder = Path(sys.modules["lakelog_cli.app"].__file__ or "").with_name("commands")
    assert {each.stem for each in folder.glob("[!_]*.py")} == set(COMMANDS)


@pytest.mark.parametrize("command", ["dispatch", "export", "sql"])
def test_a_command_of_a_package_that_is_not_here_names_it(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_installed(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("lakelog_cli.rootgroup.version", not_installed)
    done = CliRunner().invoke(make_app(), [command, "STORE"])
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert "pip install 'lakelog[lakehouse]'" in done.stderr


@pytest.mark.skipif(find_spec("lakelog_lake") is None, reason="needs the plugin lake")
def test_a_command_of_a_plugin_that_is_switched_off_says_so(
    lakelog: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKELOG_DISABLE_PLUGINS", "lake")
    done = lakelog("dispatch", "STORE")
    assert done.returncode == 2
    assert "LAKELOG_DISABLE_PLUGINS" in done.stderr


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_typer_or_rich_one_line_says_what_to_install(missing: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; import lakelog_cli.main as m; m.run()"
    done = python(program)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "pip install lakelog-tools" in done.stderr


class _Greeter:
    @hookimpl
    def lakelog_cli_commands(self, app: object) -> None:
        app.command("greet")(self.greet)  # type: ignore[attr-defined]  # a Typer application

    def greet(self, fail: bool = False) -> None:
        if fail:
            raise StoreFailed("disk gone\nreally", path="/p")
        print("hello")  # noqa: T201  # what a plugin's command does


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [([], 0, "hello\n"), (["--fail"], 4, "lakelog: /p: disk gone really\n")],
)
def test_a_plugin_adds_a_command(args: list[str], code: int, said: str) -> None:
    app = make_app()
    Registry.load([_Greeter()], {}).events.cli_commands(app)
    done = CliRunner().invoke(app, ["greet", *args])
    assert (done.exit_code, done.output) == (code, said)


def test_ctrl_c_while_the_commands_are_loaded_ends_it_quietly() -> None:
    code = (
        "import os, signal, sys\n"
        "class Hit:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'lakelog_cli.rootgroup':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Hit())\n"
        "sys.argv = ['lakelog', '--help']\n"
        "from lakelog_cli.main import run\n"
        "run()\n"
    )
    done = python(code)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
