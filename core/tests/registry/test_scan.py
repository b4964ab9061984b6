"""Entry points are found as ``importlib.metadata`` finds them, and their failures are named."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest

from lakelog.errors import DuplicateName, PluginError
from lakelog.registry import Registry
from lakelog.registry.scan import entry_points, parse

PLUGIN = """
from lakelog.hookspecs import hookimpl

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
    """A directory of installed packages that is on the path."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("good_plugin", "good_other", "good_inner", "good_outer", "explodes"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def installed(*path: Path) -> Registry:
    return Registry.load(None, {}, path=[str(entry) for entry in path])


def test_sections_comments_and_extras_of_the_file() -> None:
    text = "[console_scripts]\na = b:c\n[ lakelog ]\n# no = x\n;no = y\n\n m = p.q : r [extra]\n"
    assert list(parse(text, "lakelog")) == [("m", "p.q : r")]


def test_a_plugin_is_found_by_its_entry_point_with_its_distribution(site: Path) -> None:
    (site / "good_plugin.py").write_text(PLUGIN)
    install(site, "lakelog-good", "[lakelog]\ngood = good_plugin\n", "1.2")
    row = next(row for row in installed(site).plugins() if row.name == "good")
    assert (row.distribution, row.version) == ("lakelog-good", "1.2")
    assert row.hooks == ("lakelog_store_closed",)


def test_an_attribute_may_be_named(site: Path) -> None:
    source = "class Outer:\n    import good_inner as inner\n"
    (site / "good_inner.py").write_text(PLUGIN)
    (site / "good_outer.py").write_text(source)
    install(site, "lakelog-good", "[lakelog]\ngood = good_outer:Outer.inner\n")
    assert "good" in [row.name for row in installed(site).plugins()]


def test_plugins_given_directly_skip_the_scan(site: Path) -> None:
    install(site, "lakelog-bad", "[lakelog]\nbad = no_such_module_at_all\n")
    assert [row.name for row in Registry.load([], {}, path=[str(site)]).plugins()] == [
        *("builtin", "queues")
    ]


@pytest.mark.parametrize("value", ["no_such_module_at_all", "lakelog:nothing", "explodes"])
def test_an_entry_point_that_fails_names_plugin_package_and_cause(site: Path, value: str) -> None:
    (site / "explodes.py").write_text("1 / 0")
    install(site, "lakelog-bad", f"[lakelog]\nbad = {value}\n", "0.3")
    with pytest.raises(PluginError, match=r"'bad' of lakelog-bad 0\.3: importing it") as caught:
        installed(site)
    assert (caught.value.plugin, caught.value.distribution) == ("bad", "lakelog-bad 0.3")
    assert isinstance(caught.value.__cause__, ImportError | AttributeError | ZeroDivisionError)


def test_a_plugin_that_is_switched_off_is_not_even_imported(site: Path) -> None:
    install(site, "lakelog-bad", "[lakelog]\nbad = no_such_module_at_all\n")
    environ = {"LAKELOG_DISABLE_PLUGINS": "bad"}
    rows = Registry.load(None, environ, path=[str(site)]).plugins()
    assert [(row.name, row.enabled) for row in rows] == [("bad", False), ("builtin", True)]


def test_two_packages_with_an_entry_point_of_one_name(site: Path) -> None:
    (site / "good_plugin.py").write_text(PLUGIN)
    (site / "good_other.py").write_text(PLUGIN)
    install(site, "lakelog-one", "[lakelog]\ngood = good_plugin\n")
    install(site, "lakelog-two", "[lakelog]\ngood = good_other\n")
    with pytest.raises(DuplicateName, match=r"lakelog-one 1\.0 and lakelog-two 1\.0"):
        installed(site)


def test_two_entry_points_of_one_plugin(site: Path) -> None:
    (site / "good_plugin.py").write_text(PLUGIN)
    install(site, "lakelog-one", "[lakelog]\na = good_plugin\nb = good_plugin\n")
    with pytest.raises(DuplicateName, match=r"plugin 'b' .*: it is the same plugin as 'a'"):
        installed(site)


def test_the_first_of_two_copies_of_a_package_counts(tmp_path: Path) -> None:
    install(tmp_path / "a", "Lakelog.Good", "[lakelog]\nnew = x\n", "2.0")
    install(tmp_path / "b", "lakelog-good", "[lakelog]\nold = x\n", "1.0")
    found = entry_points("lakelog", [str(tmp_path / "a"), str(tmp_path / "b")])
    assert [(point.name, str(point.distribution)) for point in found] == [
        ("new", "Lakelog.Good 2.0")
    ]


def test_metadata_may_be_missing(tmp_path: Path) -> None:
    install(tmp_path, "lakelog-bare", "[lakelog]\nbare = x\n", meta=False)
    (found,) = entry_points("lakelog", [str(tmp_path)])
    assert found.distribution.name == "lakelog-bare"


def test_paths_that_are_not_there_hold_nothing(tmp_path: Path) -> None:
    assert entry_points("lakelog", [str(tmp_path / "absent")]) == []


def test_a_zip_file_on_the_path_is_read_through_the_library(tmp_path: Path) -> None:
    folder = install(tmp_path / "x", "lakelog-zip", "[lakelog]\nzipped = x\n")
    archive = tmp_path / "all.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name in ("METADATA", "entry_points.txt"):
            file.write(folder / name, f"{folder.name}/{name}")
    (found,) = entry_points("lakelog", [str(archive)])
    assert (found.name, str(found.distribution)) == ("zipped", "lakelog-zip 1.0")


def test_the_library_reads_only_zip_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site, archive = tmp_path / "site", tmp_path / "spark.zip"
    install(site, "lakelog-good", "[lakelog]\ngood = x\n")
    again = install(tmp_path / "x", "Lakelog.Good", "[lakelog]\nshadowed = x\n", "2.0")
    with zipfile.ZipFile(archive, "w") as file:
        for name in ("METADATA", "entry_points.txt"):
            file.write(again / name, f"{again.name}/{name}")
    asked: list[list[str]] = []

    def noted(path: list[str]) -> Iterable[Distribution]:
        asked.append(path)
        return distributions(path=path)

    monkeypatch.setattr("importlib.metadata.distributions", noted)
    found = entry_points("lakelog", [str(site), str(archive)])
    assert asked == [[str(archive)]]
    assert [str(each.distribution) for each in found] == ["lakelog-good 1.0"]
    found = entry_points("lakelog", [str(archive), str(site)])
    assert [str(each.distribution) for each in found] == ["Lakelog.Good 2.0"]


@pytest.mark.parametrize("group", ["console_scripts", "pytest11"])
def test_real_environments_give_what_the_library_gives(group: str) -> None:
    expected = {
        (point.name, point.value.partition("[")[0].strip())
        for found in distributions()
        for point in found.entry_points
        if point.group == group
    }
    assert expected
    assert {(point.name, point.value) for point in entry_points(group, sys.path)} == expected
