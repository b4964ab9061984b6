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


def test_a_factory_is_found_by_kind_and_name_and_its_settings_are_a_section() -> None:
    fast, paced = factory("fast"), factory("paced", settings=Pace)
    registry = load(Offering(fast, paced))
    assert registry.factory(FLUSH, "fast") is fast
    assert (registry.sections()["fast"], registry.sections()["paced"]) == (NoSettings, Pace)


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
