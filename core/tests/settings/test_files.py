"""Files given, of the store, of the host's project, and resources of its package."""

from __future__ import annotations

import importlib
import sys
import zipfile
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from core.tests.settings.samples import Resolve
from lakelog.errors import SettingsError, UnknownSetting
from lakelog.registry import Registry
from lakelog.settings.toml import embedded, from_toml, package_of

Write = Callable[[str, str], Path]


@pytest.mark.parametrize("kind", [str, Path])
def test_a_file_given(resolved: Resolve, write: Write, kind: type) -> None:
    file = write("given.toml", "writer = 'mmap'\n[group-commit]\nsync_flush_timeout_ms = '1s'")
    write("store/lakelog/lakelog.toml", "writer = 'direct'")
    settings = resolved(source=kind(file))
    assert settings.core.writer == "mmap"
    assert settings.section("group-commit").sync_flush_timeout_ms == 1000
    assert settings.origins["writer"] == str(file)


def test_a_path_of_another_class_is_a_file_given(resolved: Resolve, write: Write) -> None:
    class Named:
        def __fspath__(self) -> str:
            return str(write("given.toml", "writer = 'mmap'"))

        def read_bytes(self) -> bytes:
            return b"writer = 'other'"

    write("store/lakelog/lakelog.toml", "writer = 'direct'")
    assert resolved(source=Named()).core.writer == "mmap"


def test_a_relative_name_starts_from_the_current_directory(resolved: Resolve, write: Write) -> None:
    write("conf/given.toml", "writer = 'mmap'")
    assert resolved(source="conf/given.toml").core.writer == "mmap"


@pytest.mark.parametrize("name", ["broker.conf", "broker.properties"])
def test_a_file_in_rocketmqs_format(resolved: Resolve, write: Write, name: str) -> None:
    file = write(name, "maxMessageSize=77")
    assert resolved(source=str(file)).core.max_message_size_bytes == 77


def test_a_file_that_is_not_there(resolved: Resolve, tmp_path: Path) -> None:
    for given in ({"source": "no.toml"}, {"broker_conf": tmp_path / "no.conf"}):
        with pytest.raises(SettingsError, match=r"no\.(toml|conf): these settings cannot be read"):
            resolved(**given)


def test_a_file_that_is_no_toml(resolved: Resolve, write: Write) -> None:
    write("store/lakelog/lakelog.toml", "writer = mmap")
    with pytest.raises(SettingsError, match=r"lakelog\.toml: this is not TOML"):
        resolved()


def test_a_wrong_value_names_the_file(resolved: Resolve, write: Write) -> None:
    file = write("store/lakelog/lakelog.toml", "[timed]\nflush_interval_ms = 'soon'")
    with pytest.raises(SettingsError) as caught:
        resolved()
    assert (caught.value.key, caught.value.source) == ("timed.flush_interval_ms", str(file))


def test_the_nearest_pyproject_upwards(resolved: Resolve, write: Write, tmp_path: Path) -> None:
    write("pyproject.toml", "[tool.lakelog]\nwriter = 'far'")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert resolved(cwd=below).core.writer == "far"
    write("a/pyproject.toml", "[project]\nname = 'lakelog-user'")
    assert resolved(cwd=below).core.writer == "file", "only the nearest counts"


def test_a_pyproject_without_us_is_not_even_parsed(resolved: Resolve, write: Write) -> None:
    write("pyproject.toml", "this is no TOML")
    assert resolved().core.writer == "file"


def test_a_pyproject_with_an_odd_table(resolved: Resolve, write: Write) -> None:
    write("pyproject.toml", "[tool]\nlakelog = 5")
    with pytest.raises(SettingsError, match=r"tool\.lakelog must be a table"):
        resolved()
    write("pyproject.toml", "tool = 'lakelog'")
    with pytest.raises(SettingsError, match=r"tool\.lakelog must be a table"):
        resolved()


@pytest.fixture
def host(write: Write, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An application's package, imported, with settings and a subpackage."""
    package = write("site/hostapp_b/__init__.py", "").parent
    (package / "lakelog.toml").write_text("writer = 'packed'")
    (package / "conf").mkdir()
    (package / "conf" / "deep.toml").write_text("writer = 'deep'")
    monkeypatch.syspath_prepend(package.parent)
    importlib.import_module(package.name)
    yield package.name
    del sys.modules[package.name]


def test_a_resource_of_the_hosts_package_is_the_weakest_source(
    resolved: Resolve, write: Write, host: str
) -> None:
    resource = files(host) / "lakelog.toml"
    assert isinstance(resource, Path), "which is why the type cannot tell"
    settings = resolved(source=resource)
    assert settings.core.writer == "packed"
    assert f"in package {host}" in settings.origins["writer"]
    assert resolved(source=files(host) / "conf" / "deep.toml").core.writer == "deep"
    write("store/lakelog/lakelog.toml", "writer = 'own'")
    assert resolved(source=resource).core.writer == "own"
    assert resolved(source=embedded(host)).core.writer == "own"
    assert resolved(source=str(resource)).core.writer == "packed", "a name is a file given"


def test_embedded_says_it_outright(resolved: Resolve, host: str) -> None:
    settings = resolved(source=embedded(host, "conf/deep.toml"))
    assert settings.core.writer == "deep"
    assert settings.origins["writer"] == f"resource conf/deep.toml of {host}"


def test_a_resource_in_a_zip_file(
    resolved: Resolve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "app.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("hostapp_zip/__init__.py", "")
        made.writestr("hostapp_zip/lakelog.toml", "writer = 'zipped'")
    monkeypatch.syspath_prepend(archive)
    importlib.import_module("hostapp_zip")
    try:
        resource = files("hostapp_zip") / "lakelog.toml"
        assert not isinstance(resource, Path)
        settings = resolved(source=resource)
        assert settings.core.writer == "zipped"
        assert settings.origins["writer"].startswith("resource ")
        with pytest.raises(SettingsError, match="cannot be read"):
            resolved(source=files("hostapp_zip") / "no.toml")
    finally:
        del sys.modules["hostapp_zip"]


def test_an_unknown_key_in_a_resource(resolved: Resolve, write: Write, host: str) -> None:
    write(f"site/{host}/lakelog.toml", "writr = 'x'")
    with pytest.raises(UnknownSetting, match=f"in package {host}"):
        resolved(source=files(host) / "lakelog.toml")


def test_the_innermost_package_is_named(tmp_path: Path) -> None:
    class Module:
        def __init__(self, *places: object) -> None:
            self.__path__ = list(places)

    modules = {"a": Module(str(tmp_path)), "a.b": Module(str(tmp_path / "b"), 5), "none": None}
    file = tmp_path / "b" / "c" / "x.toml"
    assert package_of(file, modules) == "a.b"  # type: ignore[arg-type]  # stands in for sys.modules
    assert package_of(tmp_path / "x.toml", modules) == "a"  # type: ignore[arg-type]  # stands in for sys.modules
    assert package_of(tmp_path.parent / "x.toml", modules) is None  # type: ignore[arg-type]  # stands in for sys.modules


def test_a_value_of_a_file_is_not_shared_between_opens(tmp_path: Path) -> None:
    file, catalog = tmp_path / "own.toml", Registry.load([], {}).installed(tmp_path)
    file.write_text('dispatchers = ["one"]')
    values = [next(from_toml(file, catalog, "own.toml")).value for _ in range(2)]
    assert isinstance(values[0], list)
    values[0].append("two")
    assert values[1] == next(from_toml(file, catalog, "own.toml")).value == ["one"]
