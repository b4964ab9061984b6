"""A stranger's packages, as ``lakelog plugins new`` writes them, installed beside the core."""

from __future__ import annotations

import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from lakelog_cli.newplugin.kinds import TEMPLATES
from tests.packages.environment import Environment, run
from tests.support.once import once
from tests.support.required import missing

NEW = """
import sys, pathlib
from lakelog.registry import Registry
from lakelog_cli.newplugin.kinds import TEMPLATES
from lakelog_cli.newplugin.package import PluginNames, write_package
registry = Registry.load(None, {})
for kind, _, name in (each.partition("=") for each in sys.argv[1:]):
    write_package(pathlib.Path(name), PluginNames.of(name, registry), TEMPLATES[kind])
"""
"""Writes packages with what is installed, so that the texts come from the wheel."""

pytestmark = pytest.mark.timeout(300)
WITHOUT_CACHE = ("-p", "no:cacheprovider")
REPLACING = [kind for kind, template in TEMPLATES.items() if template.replaces]
"""Kinds of which a process uses one strategy: theirs are in an environment of their own."""
BESIDE = [kind for kind in TEMPLATES if kind not in REPLACING]
REPLACED = ",".join(TEMPLATES[kind].replaces for kind in REPLACING)
WITHOUT_SETTINGS = {"settings-format", "store-extension"}

LIST = """
import json, os
from lakelog.registry import Registry
registry = Registry.load(None, os.environ)
rows = {}
for name, offered in registry.offered.items():
    package = offered.source.package
    rows[name] = [offered.source.name, package.name, package.version]
print(json.dumps(rows))
"""

PUT = """
import sys, lakelog, acme_pace.strategy
submit, seen = acme_pace.strategy.EveryN.submit, []
def spy(self, end_offset, wait):
    seen.append((self._appends, end_offset))
    return submit(self, end_offset, wait)
acme_pace.strategy.EveryN.submit = spy
with lakelog.open("store", flush="acme-pace", acme_pace={"appends": 2}) as store:
    ends = [store.put(lakelog.Message("orders", b"hello")).end_offset for _ in range(5)]
assert seen == [(2, end) for end in ends], (seen, ends)
"""

REPLACED_PARTS = """
import lakelog
with lakelog.open("store", cleaner="retention", disk_watcher="psutil") as store:
    with lakelog.open("store") as beside:
        beside.put(lakelog.Message("orders", b"hello", queue_id=0))
        assert (store.role, beside.role) == ("owner", "attach")
    assert store.wait_dispatched()
    assert (store.count("orders"), len(store.get("orders", 0, 0).messages)) == (1, 1)
    assert store.disk() is not None
    assert store.delete_expired().deleted == ()
"""

REFUSED = """
import lakelog, pathlib
from lakelog.errors import MissingPlugin
try:
    lakelog.open("refused", flush="acme-pace")
except MissingPlugin as error:
    print(error)
assert not pathlib.Path("refused").exists()
"""


@pytest.fixture(scope="module")
def environment(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A stranger's packages, one of each kind, and the distributions that they need."""
    return _environment("strangers", BESIDE, installed, tmp_path_factory)


@pytest.fixture(scope="module")
def replacing(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Packages that replace plugins of lakelog, beside these plugins."""
    return _environment("replacing", _replacing_here(), installed, tmp_path_factory)


def _environment(
    name: str, kinds: list[str], installed: Path, tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    def make(folder: Path) -> None:
        made = Environment.make(folder / "environment")
        needs = [f"lakelog-{TEMPLATES[each].replaces}" for each in kinds if each in REPLACING]
        for each in ("lakelog-testing", *needs):
            made.bring(each, installed)
        made.run("-c", NEW, *(f"{kind}={named(kind)}" for kind in kinds), cwd=folder)
        made.install(*(folder / named(kind) for kind in kinds))

    folder = once(name, make, tmp_path_factory)
    return Environment(folder / "environment")


def _replacing_here() -> list[str]:
    """The kinds that replace a plugin; without compiled code, no accelerator."""
    is_compiled = find_spec("lakelog_native") is not None
    return [kind for kind in REPLACING if is_compiled or kind != "accelerator"]


def _of(kind: str, request: pytest.FixtureRequest) -> Environment:
    """The environment with the package of a kind."""
    if kind in REPLACING and kind not in _replacing_here():
        missing("lakelog-native is not installed: run make setup with Rust (cargo)")
    found: Environment = request.getfixturevalue(
        "replacing" if kind in REPLACING else "environment"
    )
    return found


def named(kind: str) -> str:
    """The name of the package of a kind; all but one are as long as names may be."""
    return "acme-pace" if kind == "flush-strategy" else f"acme-{kind}-".ljust(40, "x")


def project(environment: Environment, kind: str) -> Path:
    """The folder of the package of a kind."""
    return environment.folder.parent / named(kind)


@pytest.mark.parametrize("kind", TEMPLATES)
def test_the_contract_kit_passes_there(kind: str, request: pytest.FixtureRequest) -> None:
    environment = _of(kind, request)
    folder = project(environment, kind)
    said = environment.run("-m", "pytest", "-q", "-rs", *WITHOUT_CACHE, cwd=folder)
    passed = re.search(r"(\d+) passed", said)
    assert passed is not None
    assert int(passed[1]) >= 8
    expected = ["each process copies its own appends"] if kind == "replicator" else []
    assert re.findall(r"SKIPPED .*: (.*)", said) == expected


@pytest.mark.parametrize("kind", TEMPLATES)
def test_types_are_right_and_every_text_is_clean(kind: str, request: pytest.FixtureRequest) -> None:
    environment = _of(kind, request)
    folder = project(environment, kind)
    run([sys.executable, "-m", "ruff", "check", "--no-cache", "."], folder)
    run([sys.executable, "-m", "ruff", "format", "--no-cache", "--check", "."], folder)
    cache = environment.folder.parent / "mypy"
    run([sys.executable, "-m", "mypy", "--cache-dir", str(cache)], folder)


def test_every_kind_is_listed_with_its_distribution(
    environment: Environment, replacing: Environment, tmp_path: Path
) -> None:
    for kinds, there, off in ((BESIDE, environment, ""), (_replacing_here(), replacing, REPLACED)):
        lister = ("-m", "lakelog", "plugins", "--json")
        said = there.run(*lister, cwd=tmp_path, LAKELOG_DISABLE_PLUGINS=off)
        rows = {row["name"]: row for row in json.loads(said)["strategies"]}
        found = {kind: rows[named(kind)] for kind in kinds}
        assert [row["kind"].replace("_", "-") for row in found.values()] == kinds
        assert {row["distribution"] for row in found.values()} == set(map(named, kinds))
        bare = {kind for kind, row in found.items() if not row["settings"]}
        assert bare == WITHOUT_SETTINGS & {*kinds}


def test_a_store_has_all_parts_with_plugins_replaced(
    replacing: Environment, tmp_path: Path
) -> None:
    off = {"LAKELOG_DISABLE_PLUGINS": REPLACED}
    replacing.run("-c", REPLACED_PARTS, cwd=tmp_path, **off)
    said = replacing.run("-m", "lakelog", "pins", "store", "--json", cwd=tmp_path, **off)
    assert said == ""


def test_it_is_found_by_its_entry_point_and_listed_with_its_distribution(
    environment: Environment, tmp_path: Path
) -> None:
    rows = json.loads(environment.run("-c", LIST, cwd=tmp_path))
    assert rows["acme-pace"] == ["acme-pace", "acme-pace", "0.1.0"]
    assert rows["file"][:2] == ["builtin", "lakelog-core"]


def test_it_can_be_switched_off(environment: Environment, tmp_path: Path) -> None:
    rows = environment.run("-c", LIST, cwd=tmp_path, LAKELOG_DISABLE_PLUGINS="acme-pace")
    assert "acme-pace" not in json.loads(rows)


def test_settings_choose_it_and_set_what_is_its_own(
    environment: Environment, tmp_path: Path
) -> None:
    environment.run("-c", PUT, cwd=tmp_path)


def test_a_store_that_names_it_while_it_is_off_is_not_touched(
    environment: Environment, tmp_path: Path
) -> None:
    said = environment.run("-c", REFUSED, cwd=tmp_path, LAKELOG_DISABLE_PLUGINS="acme-pace")
    assert "no flush strategy 'acme-pace' is installed" in said
