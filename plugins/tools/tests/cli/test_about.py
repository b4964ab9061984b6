"""The program's output about itself: help, plugins, settings, and missing packages."""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from core.tests.registry.samples import Offering, Pace, factory, load
from lakelog.errors import StoreFailed
from lakelog.hooks.hookspecs import hookimpl
from lakelog.registry import Registry
from lakelog_cli.app import COMMANDS, make_app
from lakelog_cli.commands import plugins
from plugins.tools.tests.cli.conftest import Run


def test_help_and_version(lakelog: Run) -> None:
    done = lakelog("--help")
    assert done.returncode == 0
    assert {"Exit", "init", "put", "scan", "dump", "verify", "plugins"} <= set(done.stdout.split())
    assert lakelog("--version").stdout == f"{version('lakelog-core')}\n"


def test_config_show_has_values_and_origins(lakelog: Run, store: Path, tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text("queues_per_topic = 7\nmax_light_queues = 8\n")
    options = ["--json", "--settings", "my.toml", "--set", "max_light_queues=9"]
    done = lakelog("config", "show", store, *options)
    rows = {row["key"]: row for row in json.loads(done.stdout)["settings"]}
    assert rows["max_light_queues"]["value"] == 9, "an assignment is stronger than a file"
    assert rows["max_light_queues"]["origin"] == "argument"
    assert rows["queues_per_topic"]["value"] == 7
    assert rows["segment_size_bytes"]["value"] == 65536
    assert rows["writer"] == {"key": "writer", "value": "file", "origin": "default"}
    assert "writer = file  (default)\n" in lakelog("config", "show", store).stdout


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
    assert "active" not in json.loads(lakelog("plugins", "--json").stdout)["strategies"][0]
    assert lakelog("plugins", "--set", "flush=none").returncode == 2


def test_the_rows_tell_what_a_plugin_offers_and_what_can_be_set() -> None:
    paced = Offering(factory("paced", settings=Pace, summary="At your pace."))
    found = plugins.document(load(paced, Offering(factory("b"), name="off"), off="off"), None)
    row = next(row for row in found["strategies"] if row["name"] == "paced")
    told = row["kind"], row["plugin"], row["summary"]
    assert told == ("flush_strategy", "offering", "At your pace.")
    assert [tuple(each.values()) for each in row["settings"]] == [
        ("target", "str", None),
        ("every", "int", "100"),
        ("labels", "list[str]", "list()"),
    ]
    rows = {row["name"]: (row["hooks"], row["enabled"]) for row in found["plugins"]}
    assert rows["offering"] == (["lakelog_flush_strategies"], True)
    assert rows["off"] == ([], False)


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
    done = python(IMPORTED.format(argument=argument))
    imported = set(done.stderr.splitlines()[-1].split())
    assert "lakelog_cli" in imported
    assert imported & needless == set()


def test_the_list_of_commands_has_the_first_sentence_of_each() -> None:
    """The list has copies, so that it imports no command."""
    folder = Path(sys.modules["lakelog_cli.app"].__file__ or "").with_name("commands")
    assert {each.stem for each in folder.glob("[!_]*.py")} == set(COMMANDS)
    for name, sentence in COMMANDS.items():
        module = importlib.import_module(f"lakelog_cli.commands.{name}")
        app = getattr(module, "app", None)
        text = app.info.help if app is not None else inspect.getdoc(getattr(module, name))
        assert " ".join((text or "").partition("\n\n")[0].split()) == sentence


def test_a_command_of_a_package_that_is_not_here_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakelog_cli.app.distribution", lambda _package: None)
    for command in ("dispatch", "export", "sql"):
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


def test_a_plugin_adds_a_command() -> None:
    app = make_app()
    Registry.load([_Greeter()], {}).events.cli_commands(app)
    greeted, failed = (CliRunner().invoke(app, ["greet", *more]) for more in ([], ["--fail"]))
    assert (greeted.exit_code, greeted.output) == (0, "hello\n")
    assert (failed.exit_code, failed.output) == (4, "lakelog: /p: disk gone really\n")


def test_ctrl_c_while_the_commands_are_loaded_ends_it_quietly() -> None:
    code = (
        "import os, signal, sys\n"
        "class Hit:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'lakelog_cli.app':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Hit())\n"
        "sys.argv = ['lakelog', '--help']\n"
        "from lakelog_cli.main import run\n"
        "run()\n"
    )
    done = python(code)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
