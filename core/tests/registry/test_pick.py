"""Strategies are picked by kind and name, and made by their factories."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.tests.registry.samples import CONTEXT, Flush, Offering, Pace, factory, load, search
from lakelog.errors import DuplicateName, MissingPlugin, PluginError, SettingsError
from lakelog.interfaces import Kind, NoSettings
from lakelog.registry import discovery

FLUSH = Kind.FLUSH_STRATEGY


def test_the_built_ins_are_offered_like_any_other() -> None:
    registry = load()
    assert {"none", "inline"} <= set(registry.names(FLUSH))
    assert registry.names(Kind.WRITER) == ("file",)
    assert registry.names(Kind.APPEND_CALLBACK) == ("rocketmq",)
    assert {each.source.name for each in registry.offered.values()} == {
        *("builtin", "processes", "queues", "retention")
    }


def test_built_ins_can_be_switched_off_like_any_other() -> None:
    assert load(off="builtin,processes,queues,retention").offered == {}


def test_sections_are_the_settings_classes_by_name() -> None:
    registry = load(Offering(factory("fast"), factory("paced", settings=Pace)))
    assert registry.sections()["fast"] is NoSettings
    assert registry.sections()["paced"] is Pace


def test_a_factory_is_found_by_kind_and_name() -> None:
    wanted = factory("fast")
    assert load(Offering(wanted)).factory(FLUSH, "fast") is wanted


def test_make_hands_over_settings_and_context() -> None:
    seen: list[object] = []

    def make(settings: object, context: object) -> object:
        seen.extend((settings, context))
        return Flush()

    settings = NoSettings()
    made = load(Offering(factory(make=make))).make(FLUSH, "sample", settings, CONTEXT)
    assert isinstance(made, Flush)
    assert seen == [settings, CONTEXT]


def test_an_error_in_make_names_the_plugin_and_keeps_the_cause() -> None:
    def make(settings: object, context: object) -> object:
        raise ModuleNotFoundError("no module named 'turbo'")

    registry = load(Offering(factory(make=make)))
    with pytest.raises(PluginError, match=r"'offering'.*flush strategy 'sample'.*turbo") as caught:
        registry.make(FLUSH, "sample", NoSettings(), CONTEXT)
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)
    assert caught.value.plugin == "offering"


def test_an_error_of_lakelog_in_make_stays_what_it_is() -> None:
    def make(settings: object, context: object) -> object:
        raise SettingsError("must be a multiple of 512", key="sample.block")

    registry = load(Offering(factory(make=make)))
    with pytest.raises(SettingsError, match="multiple of 512") as caught:
        registry.make(FLUSH, "sample", NoSettings(), CONTEXT)
    assert "offering" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("kind", "name", "package"),
    [
        (Kind.WRITER, "mmap", "lakelog-mmap"), (Kind.WRITER, "staged", "lakelog-direct"),
        (Kind.WRITER, "direct", "lakelog-direct"), (FLUSH, "group-commit", "lakelog-flush"),
        (Kind.SETTINGS_FORMAT, "broker-conf", "lakelog-rocketmq"),
        (FLUSH, "timed", "lakelog-flush"), (Kind.DISPATCHER, "hash-index", "lakelog-hash-index"),
        (Kind.CLEANER, "retention", "lakelog-retention"),
        (Kind.DISK_WATCHER, "psutil", "lakelog-retention"),
        (Kind.STORE_MAINTENANCE, "maintenance", "lakelog-retention"),
        (Kind.STORE_SHARING, "sharing", "lakelog-processes"),
        (Kind.DISPATCHER, "consume-queue", "lakelog-queues"),
        (Kind.FOLLOWER, "lake", "lakelog-lake"),
    ],
)  # fmt: skip  # a table of packages
def test_a_missing_strategy_of_ours_names_its_package(
    kind: Kind, name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    search(monkeypatch)
    monkeypatch.setattr(discovery, "_OF_EVERY_STORE", ())
    with pytest.raises(MissingPlugin, match=rf"{name!r} is installed: pip install {package}$"):
        load().factory(kind, name)


@pytest.mark.parametrize(("point", "name"), [("lake-mmap", "mmap"), ("fancy", "fancy")])
def test_plugins_that_were_given_replace_installed_ones(
    point: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search(monkeypatch, tmp_path)
    folder = tmp_path / "lakelog_mmap-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: lakelog-mmap\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[lakelog]\n{point} = nowhere\n")
    words = rf"the writer {name!r} is installed \(lakelog-mmap 1.0\), but plugins=.* add it there"
    with pytest.raises(MissingPlugin, match=words):
        load().factory(Kind.WRITER, name)
    with pytest.raises(MissingPlugin, match=r"'other' is installed; installed are file"):
        load().factory(Kind.WRITER, "other")


def test_a_missing_strategy_lists_what_there_is_and_the_nearest() -> None:
    registry = load(Offering(factory("eager")))
    with pytest.raises(MissingPlugin, match=r"installed are eager, .*did you mean 'eager'\?"):
        registry.factory(FLUSH, "eagre")


def test_a_misspelt_strategy_of_ours_names_its_package_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search(monkeypatch)
    with pytest.raises(MissingPlugin, match=r"did you mean 'group-commit' .*lakelog-flush"):
        load().factory(FLUSH, "groupcommit")


@pytest.mark.parametrize("name", ["file", "mmap"])
def test_a_name_of_another_kind_says_so(name: str) -> None:
    with pytest.raises(MissingPlugin, match=rf"{name!r} is a writer, and a flush strategy is"):
        load().factory(FLUSH, name)


def test_a_strategy_of_a_plugin_that_is_switched_off_says_so() -> None:
    registry = load(Offering(factory("mmap"), name="mmap"), off="mmap")
    with pytest.raises(MissingPlugin, match="the plugin 'mmap' is switched off"):
        registry.factory(Kind.WRITER, "mmap")


def test_two_plugins_of_one_name() -> None:
    with pytest.raises(DuplicateName, match="plugin 'twin': there are two plugins"):
        load(Offering(factory("one"), name="twin"), Offering(factory("two"), name="twin"))


def test_one_plugin_given_twice() -> None:
    plugin = Offering(factory())
    with pytest.raises(DuplicateName, match=r"'offering': there are two .*\(given to open and"):
        load(plugin, plugin)


def test_two_strategies_of_one_name() -> None:
    first, second = Offering(factory("x"), name="first"), Offering(factory("x"), name="second")
    with pytest.raises(DuplicateName, match=r"'x', but plugin '(first|second)'"):
        load(first, second)


def test_names_are_unique_across_kinds_and_built_ins() -> None:
    with pytest.raises(DuplicateName, match=r"'file'.*'file' already; names are unique"):
        load(Offering(factory("file")))


def test_a_plugin_that_is_switched_off_offers_nothing() -> None:
    registry = load(
        Offering(factory("a"), name="on"),
        Offering(factory("b"), name="off"),
        off=" off, other,",
    )
    assert list(registry.plugged.off) == ["off"]
    assert "b" not in registry.names(FLUSH)
