"""Files of settings: where they are looked for, and formats that plugins offer."""

from __future__ import annotations

import importlib
import sys
import zipfile
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import attrs
import pytest

from core.tests.registry.samples import plugin
from core.tests.settings.samples import Resolve
from lakelog.errors import BadStrategy, MissingPlugin, SettingsError, UnknownSetting
from lakelog.hooks import Context, Factory, Kind, NoSettings, TranslatedValue, Translation
from lakelog.registry import Registry
from lakelog.settings.resolver import embedded, from_toml

Write = Callable[[str, str], Path]


def test_a_file_given(resolved: Resolve, write: Write) -> None:
    class Named:
        def __fspath__(self) -> str:
            return str(file)

        def read_bytes(self) -> bytes:
            return b"writer = 'other'"

    file = write("conf/given.toml", "writer = 'mmap'\n[group-commit]\nsync_flush_timeout_ms = '1s'")
    write("store/lakelog/lakelog.toml", "writer = 'direct'")
    for source in (str(file), file, Named(), "conf/given.toml"):  # from the current directory
        settings = resolved(source=source)
        assert settings.core.writer == "mmap"
        assert settings.section("group-commit").sync_flush_timeout_ms == 1000
        assert settings.origins["writer"] == str(file)


def test_a_file_that_is_not_there(resolved: Resolve, tmp_path: Path) -> None:
    for given in ({"source": "no.toml"}, {"broker_conf": tmp_path / "no.conf"}):
        with pytest.raises(SettingsError, match=r"no\.(toml|conf): these settings cannot be read"):
            resolved(**given)


def test_a_file_that_cannot_be_right_is_named(resolved: Resolve, write: Write) -> None:
    file = write("store/lakelog/lakelog.toml", "writer = mmap")
    with pytest.raises(SettingsError, match=r"lakelog\.toml: this is not TOML"):
        resolved()
    file.write_text("[timed]\nflush_interval_ms = 'soon'")
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


def test_a_pyproject_that_is_odd(resolved: Resolve, write: Write) -> None:
    write("pyproject.toml", "this is no TOML")
    assert resolved().core.writer == "file", "without us it is not even parsed"
    for odd in ("[tool]\nlakelog = 5", "tool = 'lakelog'"):
        write("pyproject.toml", odd)
        with pytest.raises(SettingsError, match=r"tool\.lakelog must be a table"):
            resolved()


@pytest.fixture
def host(write: Write, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
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
    deep = resolved(source=embedded(host, "conf/deep.toml"))
    assert deep.origins["writer"] == f"resource conf/deep.toml of {host}"
    write("store/lakelog/lakelog.toml", "writer = 'own'")
    assert resolved(source=resource).core.writer == "own"
    assert resolved(source=embedded(host)).core.writer == "own"
    assert resolved(source=str(resource)).core.writer == "packed", "a name is a file given"
    resource.write_text("writr = 'x'")
    with pytest.raises(UnknownSetting, match=f"in package {host}"):
        resolved(source=resource)


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


def test_a_value_of_a_file_is_not_shared_between_opens(tmp_path: Path) -> None:
    file, catalog = tmp_path / "own.toml", Registry.load([], {}).installed(tmp_path)
    file.write_text('dispatchers = ["one"]')
    values = [next(from_toml(file, catalog, "own.toml")).value for _ in range(2)]
    assert isinstance(values[0], list)
    values[0].append("two")
    assert values[1] == next(from_toml(file, catalog, "own.toml")).value == ["one"]


@attrs.frozen
class Lines:
    """Reads ``key value`` from each line of a file; ``never`` sets nothing."""

    path: Path
    suffixes: tuple[str, ...] = (".lines",)

    def read(self, data: bytes, origin: str) -> Translation:
        pairs = dict(line.split(" ") for line in data.decode().splitlines())
        if "bad" in pairs:
            raise SettingsError("it is bad", key="bad", source=origin)
        unused = {"never": f"{pairs.pop('never')} in {self.path.name}"} if "never" in pairs else {}
        values = (TranslatedValue(key, int(text), (key.upper(),)) for key, text in pairs.items())
        return Translation(tuple(values), unused)

    def translate_key(self, key: str) -> str | None:
        return {"QUEUES": "queues_per_topic", "NOWHERE": "nowhere.key"}.get(key)


def offering(name: str = "lines", make: Any = Lines) -> Any:
    def offer() -> list[Factory]:
        def made(settings: NoSettings, context: Context) -> Any:
            return make(context.path)

        return [Factory(Kind.SETTINGS_FORMAT, name, NoSettings, made)]

    return plugin(f"of-{name}", lakelog_settings_formats=offer)


def test_a_file_is_read_by_the_format_of_its_suffix(resolved: Resolve, write: Write) -> None:
    file = write("given.lines", "queues_per_topic 9\nnever 5\ntimed.flush_interval_ms 7")
    settings = resolved(source="given.lines", plugins=[offering()])
    assert settings.core.queues_per_topic == 9
    assert settings.section("timed").flush_interval_ms == 7
    assert settings.origins["queues_per_topic"] == f"{file} (QUEUES_PER_TOPIC)"
    assert settings.unused == {"never": f"{file}: 5 in store"}

    write("given.lines", "spark.target 1\ntimed.pace 2")
    unused = resolved(source="given.lines", plugins=[offering()]).unused
    assert "spark.target: no installed plugin has a section [spark]" in unused["SPARK.TARGET"]
    assert "timed.pace is not a setting of the plugin" in unused["TIMED.PACE"]


def test_which_format_reads_files_of_other_suffixes(resolved: Resolve, write: Write) -> None:
    for name in ("given.toml", "given"):
        write(name, "writer = 'mmap'")
        assert resolved(source=name, plugins=[offering()]).core.writer == "mmap"
    file, plugins = write("options", "queues_per_topic 9"), [offering("broker-conf")]
    assert resolved(broker_conf=file, plugins=plugins).core.queues_per_topic == 9


def test_without_the_plugin_its_package_is_named(resolved: Resolve, write: Write) -> None:
    for key, name in (("broker_conf", "a.toml"), ("source", "a.conf"), ("source", "a.properties")):
        given = {key: write(name, "")}
        match = r"'broker-conf' is installed: pip install lakelog-roc"
        with pytest.raises(MissingPlugin, match=match):
            resolved(**given, plugins=[])


def test_plugins_that_are_given_stand_in_the_place_of_the_installed_one(store: Path) -> None:
    pytest.importorskip("lakelog_rocketmq")
    formats = Registry.load([], {}).installed(store).formats
    with pytest.raises(MissingPlugin, match=r"lakelog-rocketmq .*plugins=\[\.\.\.\].*add it there"):
        formats.read("broker-conf", b"", "broker.conf")


def test_an_error_of_settings_passes_as_it_is(resolved: Resolve, write: Write) -> None:
    file = write("given.lines", "bad 1")
    with pytest.raises(SettingsError, match="it is bad") as caught:
        resolved(source="given.lines", plugins=[offering()])
    assert (caught.value.key, caught.value.source) == ("bad", str(file))


def test_a_mistake_of_the_plugin_names_it(resolved: Resolve, write: Write) -> None:
    class Odd(Lines):
        def read(self, data: bytes, origin: str) -> Any:
            return {"queues_per_topic": 9}

    write("given.lines", "one two three")
    for plugins, error, match in (
        (
            [offering()],
            BadStrategy,
            r"'of-lines'.*format 'lines' failed to read .*given.lines with ValueError",
        ),
        ([offering(make=Odd)], BadStrategy, r"'of-lines'.*as {'queues_per_topic': 9}, which is no"),
        ([offering(make=str)], BadStrategy, r"'of-lines'.*it lacks the method read"),
        (
            [offering("more"), offering()],
            SettingsError,
            r"lines and more all read .* end with \.lines",
        ),
    ):
        with pytest.raises(error, match=match):
            resolved(source="given.lines", plugins=plugins)


def test_a_key_of_another_system_is_translated_where_it_is_known(resolved: Resolve) -> None:
    with pytest.raises(UnknownSetting, match=r"nearest known one is queues_per_topic$"):
        resolved(arguments={"QUEUES": 1}, plugins=[offering()])
    with pytest.raises(UnknownSetting, match="nearest known one is") as caught:
        resolved(arguments={"NOWHERE": 1}, plugins=[offering()])
    assert "nowhere.key" not in str(caught.value)
