"""A stranger's packages, as ``lakelog plugins new`` writes them, installed beside the core."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from lakelog_cli.commands.plugins import TEMPLATES
from tests.packages.environment import Environment, run
from tests.support import maven
from tests.support.once import once
from tests.support.required import missing

NEW = """
import sys, pathlib
from lakelog.registry import Registry
from lakelog_cli.commands.plugins import TEMPLATES
from lakelog_cli.commands.plugins import PluginNames, write_package
registry = Registry.load(None, {})
for kind, _, name in (each.partition("=") for each in sys.argv[1:]):
    write_package(pathlib.Path(name), PluginNames.of(name, registry), TEMPLATES[kind])
"""
"""Writes packages with what is installed, so that the texts come from the wheel."""

pytestmark = pytest.mark.timeout(300)
both = pytest.mark.parametrize("name", ["environment", "replacing"])
MYPY_CACHE = maven.CACHE / "mypy-of-packages"
"""It stays: types of NumPy and of lakelog are checked anew where these have changed."""
WITHOUT_CACHE = ("-p", "no:cacheprovider")
REPLACING = [kind for kind, template in TEMPLATES.items() if template.replaces]
"""Kinds of which a process uses one strategy: theirs are in an environment of their own."""
BESIDE = [kind for kind in TEMPLATES if kind not in REPLACING]
REPLACED = ",".join(TEMPLATES[kind].replaces for kind in REPLACING)
WITHOUT_SETTINGS = {"settings-format", "store-extension"}


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


def _here(name: str, request: pytest.FixtureRequest) -> tuple[Environment, list[str]]:
    """An environment, and the kinds of the packages in it."""
    kinds = BESIDE if name == "environment" else _replacing_here()
    if name == "replacing" and kinds != REPLACING:
        missing("lakelog-native is not installed: run make setup with Rust (cargo)")
    found: Environment = request.getfixturevalue(name)
    return found, kinds


def named(kind: str) -> str:
    """The name of the package of a kind; all but one are as long as names may be."""
    return "acme-pace" if kind == "flush-strategy" else f"acme-{kind}-".ljust(40, "x")


def project(environment: Environment, kind: str) -> Path:
    """The folder of the package of a kind."""
    return environment.folder.parent / named(kind)


def test_a_stranger_tests_and_checks_a_package_in_its_folder(environment: Environment) -> None:
    folder = project(environment, "flush-strategy")
    said = environment.run("-m", "pytest", "-q", *WITHOUT_CACHE, cwd=folder)
    assert re.search(r"\d+ passed", said) is not None
    run([sys.executable, "-m", "mypy", "--cache-dir", str(MYPY_CACHE)], folder)


@both
def test_the_contract_kits_pass_there(name: str, request: pytest.FixtureRequest) -> None:
    """All in one process: a program that starts takes longer than the kits."""
    there, kinds = _here(name, request)
    folders = [f"{named(kind)}/tests" for kind in kinds]
    own = ("-c", os.devnull, "--rootdir=.")  # not the configuration of the first one
    options = ("-q", "-rsp", "--import-mode=importlib", *own, *WITHOUT_CACHE)
    said = there.run("-m", "pytest", *options, *folders, cwd=there.folder.parent, COLUMNS="300")
    for kind in kinds:
        passed = re.findall(rf"^PASSED {named(kind)}/tests/", said, re.MULTILINE)
        assert len(passed) >= 8, (kind, said)
    expected = ["each process copies its own appends"] if "replicator" in kinds else []
    assert re.findall(r"^SKIPPED .*: (.*)", said, re.MULTILINE) == expected


@both
def test_types_are_right_and_every_text_is_clean(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Types of all packages at once: each has a test module of the same name, so in a copy."""
    there, kinds = _here(name, request)
    folders = [str(project(there, kind)) for kind in kinds]
    run([sys.executable, "-m", "ruff", "check", "--no-cache", *folders])
    run([sys.executable, "-m", "ruff", "format", "--no-cache", "--check", *folders])
    for kind, folder in zip(kinds, folders, strict=True):
        shutil.copytree(Path(folder) / "src", tmp_path, dirs_exist_ok=True)
        shutil.copytree(Path(folder) / "tests", tmp_path / f"tests_{kind.replace('-', '_')}")
    options = ("--strict", "--config-file=", "--explicit-package-bases")
    run([sys.executable, "-m", "mypy", *options, "--cache-dir", str(MYPY_CACHE), "."], tmp_path)


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


def test_settings_choose_it_and_set_what_is_its_own(
    environment: Environment, tmp_path: Path
) -> None:
    environment.run("-c", PUT, cwd=tmp_path)


def test_a_store_that_names_it_while_it_is_off_is_not_touched(
    environment: Environment, tmp_path: Path
) -> None:
    said = environment.run("-c", REFUSED, cwd=tmp_path, LAKELOG_DISABLE_PLUGINS="acme-pace")
    assert "no flush strategy 'acme-pace' is installed" in said
