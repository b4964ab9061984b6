"""Plugins are found by entry points; strategies are picked by kind and name, and made."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from core.tests.registry.samples import CONTEXT, Offering, Pace, factory, hooks_of, load, search
from lakelog.errors import BadStrategy, DuplicateName, MissingPlugin, PluginError, SettingsError
from lakelog.hooks import Kind, NoSettings
from lakelog.registry import Registry, loading
from lakelog.registry.loading import installed_sources

FLUSH = Kind.FLUSH_STRATEGY


def test_built_ins_can_be_switched_off_like_any_other() -> None:
    assert load(off="builtin,processes,queues,retention").offered == {}


def test_a_factory_is_found_by_kind_and_name_and_its_settings_are_a_section() -> None:
    fast, paced = factory("fast"), factory("paced", settings=Pace)
    registry = load(Offering(fast, paced))
    assert registry.factory(FLUSH, "fast") is fast
    assert (registry.sections()["fast"], registry.sections()["paced"]) == (NoSettings, Pace)


def test_settings_named_by_their_place_are_imported_when_they_are_needed() -> None:
    def registry(place: str) -> Registry:
        return load(Offering(factory("paced", settings=place)))

    assert registry("core.tests.registry.samples:Pace").sections()["paced"] is Pace
    for place in ("core.tests.registry.samples:Nothing", "no.such.module:Pace", "Pace", ":Pace"):
        with pytest.raises(BadStrategy, match="settings of 'paced' cannot be imported"):
            registry(place).sections()["paced"]
    with pytest.raises(BadStrategy, match="which is no attrs class"):
        registry("core.tests.registry.samples:factory").sections()["paced"]


def test_an_error_in_make_names_the_plugin_and_keeps_the_cause() -> None:
    def make_with(error: Exception) -> None:
        def make(settings: object, context: object) -> object:
            raise error

        load(Offering(factory(make=make))).make(FLUSH, "sample", NoSettings(), CONTEXT)

    with pytest.raises(PluginError, match=r"'offering'.*flush strategy 'sample'.*turbo") as caught:
        make_with(ModuleNotFoundError("no module named 'turbo'"))
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)
    assert caught.value.plugin == "offering"
    with pytest.raises(SettingsError, match="multiple of 512") as ours:
        make_with(SettingsError("must be a multiple of 512", key="sample.block"))
    assert "offering" in ours.value.__notes__[0]


@pytest.mark.parametrize(
    ("kind", "name", "package"),
    [
        (Kind.WRITER, "mmap", "lakelog-writers"), (Kind.WRITER, "staged", "lakelog-writers"),
        (Kind.WRITER, "direct", "lakelog-writers"), (FLUSH, "group-commit", "lakelog-flush"),
        (Kind.SETTINGS_FORMAT, "broker-conf", "lakelog-rocketmq"),
        (FLUSH, "timed", "lakelog-flush"), (Kind.DISPATCHER, "hash-index", "lakelog-hash-index"),
        (Kind.CLEANER, "retention", "lakelog-retention"),
        (Kind.DISK_WATCHER, "psutil", "lakelog-retention"),
        (Kind.DISPATCHER, "consume-queue", "lakelog-queues"),
        (Kind.FOLLOWER, "lake", "lakelog-lake"),
    ],
)  # fmt: skip  # a table of packages
def test_a_missing_strategy_of_ours_names_its_package(
    kind: Kind, name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    search(monkeypatch)
    monkeypatch.setattr(loading, "_OF_EVERY_STORE", ())
    with pytest.raises(MissingPlugin, match=rf"{name!r} is installed: pip install {package}$"):
        load().factory(kind, name)


@pytest.mark.parametrize(("point", "name"), [("lake-mmap", "mmap"), ("fancy", "fancy")])
def test_plugins_that_were_given_replace_installed_ones(
    point: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search(monkeypatch, tmp_path)
    folder = tmp_path / "lakelog_writers-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: lakelog-writers\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[lakelog]\n{point} = nowhere\n")
    words = (
        rf"the writer {name!r} is installed \(lakelog-writers 1.0\), but plugins=.* add it there"
    )
    with pytest.raises(MissingPlugin, match=words):
        load().factory(Kind.WRITER, name)
    with pytest.raises(MissingPlugin, match=r"'other' is installed; installed are file"):
        load().factory(Kind.WRITER, "other")


def test_a_missing_strategy_lists_what_there_is_and_the_nearest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search(monkeypatch)
    registry = load(Offering(factory("eager")))
    for name, match in (
        ("eagre", r"installed are eager, .*did you mean 'eager'\?"),
        ("groupcommit", r"did you mean 'group-commit' .*lakelog-flush"),
        ("file", r"'file' is a writer, and a flush strategy is"),
        ("mmap", r"'mmap' is a writer, and a flush strategy is"),
    ):
        with pytest.raises(MissingPlugin, match=match):
            registry.factory(FLUSH, name)


def test_a_strategy_of_a_plugin_that_is_switched_off_says_so() -> None:
    registry = load(Offering(factory("mmap"), name="mmap"), off="mmap")
    with pytest.raises(MissingPlugin, match="the plugin 'mmap' is switched off"):
        registry.factory(Kind.WRITER, "mmap")


def test_names_are_unique() -> None:
    same = Offering(factory())
    for first, second, match in (
        (
            Offering(factory("one"), name="twin"),
            Offering(factory("two"), name="twin"),
            "plugin 'twin': there are two plugins",
        ),
        (same, same, r"'offering': there are two .*\(given to open and"),
        (
            Offering(factory("x"), name="first"),
            Offering(factory("x"), name="second"),
            r"'x', but plugin '(first|second)'",
        ),
        (Offering(), Offering(factory("file"), name="other"), r"'file'.*'file' already; names are"),
    ):
        with pytest.raises(DuplicateName, match=match):
            load(first, second)


def test_a_plugin_that_is_switched_off_offers_nothing() -> None:
    registry = load(
        Offering(factory("a"), name="on"),
        Offering(factory("b"), name="off"),
        off=" off, other,",
    )
    assert list(registry.plugged.off) == ["off"]
    assert "b" not in registry.names(FLUSH)


PLUGIN = """
from lakelog.hooks.hookspecs import hookimpl

@hookimpl
def lakelog_store_closed(path): ...
"""


def install(site: Path, name: str, points: str, version: str = "1.0", meta: bool = True) -> Path:
    """Put metadata of a distribution into ``site``, as an installer would."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    if meta:
        header = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nName: not-this\n"
        (folder / "METADATA").write_text(header)
    (folder / "entry_points.txt").write_text(points)
    return folder


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    search(monkeypatch, tmp_path)
    for name in ("good_plugin", "good_other", "good_inner", "good_outer", "explodes"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def installed() -> Registry:
    return Registry.load(None, {})


def found() -> list[tuple[str, str]]:
    return [(each.name, str(each.distribution)) for each in installed_sources()]


def test_a_plugin_is_found_by_its_entry_point_with_its_distribution(site: Path) -> None:
    (site / "good_plugin.py").write_text(PLUGIN)
    text = "[console_scripts]\na = b:c\n[lakelog]\n# no = x\n m = good_plugin [extra]\n"
    install(site, "lakelog-good", text, "1.2")
    assert found() == [("m", "lakelog-good 1.2")]
    registry = installed()
    assert registry.plugged.sources.keys() == {"builtin", "m"}
    assert str(registry.plugged.sources["m"].package) == "lakelog-good 1.2"
    assert hooks_of(registry, "m") == ["lakelog_store_closed"]


def test_an_attribute_may_be_named(site: Path) -> None:
    source = "class Outer:\n    import good_inner as inner\n"
    (site / "good_inner.py").write_text(PLUGIN)
    (site / "good_outer.py").write_text(source)
    install(site, "lakelog-good", "[lakelog]\ngood = good_outer:Outer.inner\n")
    assert "good" in installed().plugged.sources


@pytest.mark.parametrize("value", ["no_such_module_at_all", "lakelog:nothing", "explodes"])
def test_an_entry_point_that_fails_names_plugin_package_and_cause(site: Path, value: str) -> None:
    (site / "explodes.py").write_text("1 / 0")
    install(site, "lakelog-bad", f"[lakelog]\nbad = {value}\n", "0.3")
    with pytest.raises(PluginError, match=r"'bad' of lakelog-bad 0\.3: importing it") as caught:
        installed()
    assert (caught.value.plugin, caught.value.distribution) == ("bad", "lakelog-bad 0.3")
    assert isinstance(caught.value.__cause__, ImportError | AttributeError | ZeroDivisionError)


def test_a_plugin_that_is_switched_off_is_not_even_imported(site: Path) -> None:
    install(site, "lakelog-bad", "[lakelog]\nbad = no_such_module_at_all\n")
    environ = {"LAKELOG_DISABLE_PLUGINS": "bad"}
    plugged = Registry.load(None, environ).plugged
    assert (list(plugged.off), list(plugged.sources)) == (["bad"], ["builtin"])
    given = Registry.load([], {}).plugged  # skips the scan
    assert list(given.sources) == ["builtin", "queues", "retention"]


def test_two_packages_with_an_entry_point_of_one_name(site: Path) -> None:
    (site / "good_plugin.py").write_text(PLUGIN)
    (site / "good_other.py").write_text(PLUGIN)
    install(site, "lakelog-one", "[lakelog]\ngood = good_plugin\n")
    install(site, "lakelog-two", "[lakelog]\ngood = good_other\n")
    with pytest.raises(DuplicateName, match=r"lakelog-one 1\.0 and lakelog-two 1\.0"):
        installed()


def test_two_entry_points_of_one_plugin(site: Path) -> None:
    (site / "good_plugin.py").write_text(PLUGIN)
    install(site, "lakelog-one", "[lakelog]\na = good_plugin\nb = good_plugin\n")
    with pytest.raises(DuplicateName, match=r"plugin 'b' .*: it is the same plugin as 'a'"):
        installed()


def test_the_first_of_two_copies_of_a_package_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "a", "Lakelog.Good", "[lakelog]\nnew = x\n", "2.0")
    install(tmp_path / "b", "lakelog-good", "[lakelog]\nold = x\n", "1.0")
    search(monkeypatch, tmp_path / "a", tmp_path / "b")
    assert found() == [("new", "Lakelog.Good 2.0")]
    search(monkeypatch, tmp_path / "b", tmp_path / "a")
    assert found() == [("old", "lakelog-good 1.0")]


def test_metadata_may_be_missing(site: Path) -> None:
    (site / "good_plugin.py").write_text(PLUGIN)
    install(site, "lakelog-bare", "[lakelog]\nbare = good_plugin\n", meta=False)
    assert found() == [("bare", "None")]
    assert "bare" in installed().plugged.sources


def test_a_zip_file_on_the_path_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = install(tmp_path / "x", "lakelog-zip", "[lakelog]\nzipped = zipped_plugin\n")
    archive = tmp_path / "all.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("zipped_plugin.py", PLUGIN)
        for name in ("METADATA", "entry_points.txt"):
            file.write(folder / name, f"{folder.name}/{name}")
    search(monkeypatch, tmp_path / "absent", archive)
    assert found() == [("zipped", "lakelog-zip 1.0")]
    assert "zipped" in installed().plugged.sources


def test_plugins_are_loaded_once_until_what_is_installed_changes(site: Path) -> None:
    (site / "good_plugin.py").write_text(PLUGIN)
    (site / "good_other.py").write_text(PLUGIN)
    folder = install(site, "lakelog-one", "[lakelog]\none = good_plugin\n")
    installed()  # importing the plugin may create __pycache__, which changes the folder once
    first = installed()
    assert installed() is first
    assert Registry.load(None, {"LAKELOG_DISABLE_PLUGINS": "one"}).plugged.off.keys() == {"one"}
    install(site, "lakelog-two", "[lakelog]\ntwo = good_other\n")
    _changed_later(site)
    assert installed().plugged.sources.keys() == {"builtin", "one", "two"}
    shutil.rmtree(folder)
    _changed_later(site)
    assert installed().plugged.sources.keys() == {"builtin", "two"}


def test_another_search_path_is_searched(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (site / "good_plugin.py").write_text(PLUGIN)
    install(site / "more", "lakelog-one", "[lakelog]\none = good_plugin\n")
    assert "one" not in installed().plugged.sources
    search(monkeypatch, site / "more", site)
    assert "one" in installed().plugged.sources


def _changed_later(folder: Path) -> None:
    """Set the folder's time apart from the former one: clocks of file systems tick slowly."""
    status = folder.stat()
    os.utime(folder, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000_000))


CODE = """
import sys
before = set(sys.modules)
from lakelog.registry import Registry
Registry.load(None, {})
print(*set(sys.modules) - before)
"""
SLOW = {"difflib", "numpy", "pytest", "asyncio"}


def test_loading_imports_nothing_that_is_slow() -> None:
    run = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) & SLOW == set()
