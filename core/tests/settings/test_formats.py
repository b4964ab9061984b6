"""Files in other formats than TOML, read by what plugins offer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from core.tests.registry.samples import plugin
from core.tests.settings.samples import Resolve
from lakelog.errors import BadStrategy, MissingPlugin, SettingsError, UnknownSetting
from lakelog.interfaces import Context, Factory, Kind, NoSettings, TranslatedValue, Translation
from lakelog.registry import Registry

Write = Callable[[str, str], Path]


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
    """A plugin that offers a format."""

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


def test_what_no_installed_plugin_has_is_unused(resolved: Resolve, write: Write) -> None:
    write("given.lines", "spark.target 1\ntimed.pace 2")
    unused = resolved(source="given.lines", plugins=[offering()]).unused
    assert "spark.target: no installed plugin has a section [spark]" in unused["SPARK.TARGET"]
    assert "timed.pace is not a setting of the plugin" in unused["TIMED.PACE"]


@pytest.mark.parametrize("name", ["given.toml", "given"])
def test_all_other_files_are_toml(resolved: Resolve, write: Write, name: str) -> None:
    write(name, "writer = 'mmap'")
    assert resolved(source=name, plugins=[offering()]).core.writer == "mmap"


def test_the_format_broker_conf_reads_what_is_given_so_whatever_its_suffix(
    resolved: Resolve, write: Write
) -> None:
    file = write("options", "queues_per_topic 9")
    plugins = [offering("broker-conf")]
    assert resolved(broker_conf=file, plugins=plugins).core.queues_per_topic == 9


@pytest.mark.parametrize(
    "given", [{"broker_conf": Path("a.toml")}, {"source": "a.conf"}, {"source": "a.properties"}]
)
def test_without_the_plugin_its_package_is_named(
    resolved: Resolve, write: Write, given: dict[str, object]
) -> None:
    for name in ("a.toml", "a.conf", "a.properties"):
        write(name, "")
    with pytest.raises(MissingPlugin, match=r"'broker-conf' is installed: pip install lakelog-roc"):
        resolved(**given, plugins=[])


def test_plugins_that_are_given_stand_in_the_place_of_the_installed_one(store: Path) -> None:
    pytest.importorskip("lakelog_rocketmq")
    formats = Registry.load([], {}).installed(store).formats
    with pytest.raises(MissingPlugin, match=r"lakelog-rocketmq .*plugins=\[\.\.\.\].*add it there"):
        formats.read("broker-conf", b"", "broker.conf")


def test_two_formats_of_one_suffix_cannot_be_told_apart(resolved: Resolve, write: Write) -> None:
    write("given.lines", "")
    with pytest.raises(SettingsError, match=r"lines and more all read .* end with \.lines"):
        resolved(source="given.lines", plugins=[offering("more"), offering()])


def test_an_error_of_settings_passes_as_it_is(resolved: Resolve, write: Write) -> None:
    file = write("given.lines", "bad 1")
    with pytest.raises(SettingsError, match="it is bad") as caught:
        resolved(source="given.lines", plugins=[offering()])
    assert (caught.value.key, caught.value.source) == ("bad", str(file))


def test_whatever_else_it_raises_names_the_plugin(resolved: Resolve, write: Write) -> None:
    write("given.lines", "one two three")
    match = r"'of-lines'.*settings format 'lines' failed to read .*given.lines with ValueError"
    with pytest.raises(BadStrategy, match=match) as caught:
        resolved(source="given.lines", plugins=[offering()])
    assert isinstance(caught.value.__cause__, ValueError)


def test_an_answer_of_another_class_names_the_plugin(resolved: Resolve, write: Write) -> None:
    class Odd(Lines):
        def read(self, data: bytes, origin: str) -> Any:
            return {"queues_per_topic": 9}

    write("given.lines", "")
    with pytest.raises(BadStrategy, match=r"'of-lines'.*as {'queues_per_topic': 9}, which is no"):
        resolved(source="given.lines", plugins=[offering(make=Odd)])


def test_an_object_that_is_no_format_names_the_plugin(resolved: Resolve, write: Write) -> None:
    write("given.lines", "")
    with pytest.raises(BadStrategy, match=r"'of-lines'.*it lacks the method read"):
        resolved(source="given.lines", plugins=[offering(make=str)])


def test_a_key_of_another_system_is_translated_where_it_is_known(resolved: Resolve) -> None:
    with pytest.raises(UnknownSetting, match=r"nearest known one is queues_per_topic$"):
        resolved(arguments={"QUEUES": 1}, plugins=[offering()])
    with pytest.raises(UnknownSetting, match="nearest known one is") as caught:
        resolved(arguments={"NOWHERE": 1}, plugins=[offering()])
    assert "nowhere.key" not in str(caught.value)
