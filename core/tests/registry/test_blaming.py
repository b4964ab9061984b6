"""What a plugin raises comes with its name, and with what was called; its folders are its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

import lakelog
from core.tests.registry.samples import Flush, plugin
from core.tests.store.support import SEGMENT, tree
from lakelog.builtin import FileWriter
from lakelog.errors import BadStrategy, LakelogError, PluginError, StoreError
from lakelog.hooks import Factory, Kind, NoSettings
from lakelog_doctor.rebuild import rebuild


class Derived:
    """A dispatcher without files."""

    directories: Any = ()

    def __init__(self, start: int = 0) -> None:
        self.start = start

    def resume(self, minimum: int, end: int) -> int:
        return self.start

    def dispatch(self, batch: Any) -> None:
        pass

    def truncate(self, end_offset: int) -> None:
        pass

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def fails(error: BaseException) -> Callable[..., Any]:
    def call(*_: Any, **__: Any) -> Any:
        raise error

    return call


def of(made: Any, **methods: Any) -> Any:
    """``made`` with other methods, or properties."""
    return type("Changed", (type(made),), methods)(*([0] if isinstance(made, FileWriter) else []))


def offering(kind: Kind, make: Any, **more: Any) -> Any:
    offered = Factory(kind, "odd", **{"settings": NoSettings, "make": make, **more})
    return plugin("acme", **{kind.value: lambda: [offered]})


def places(error: BaseException) -> dict[str, tuple[Any, dict[str, Any], str]]:
    """By name: a plugin that raises ``error`` there, the settings, and what the error names."""
    fault, flush, writer = fails(error), Kind.FLUSH_STRATEGY, Kind.WRITER
    in_property = {"traits": property(fault)}
    return {
        "make": (offering(flush, fault), {"flush": "odd"}, "make of the flush strategy 'odd'"),
        "start": (
            offering(flush, lambda *_: of(Flush(), start=fault)),
            {"flush": "odd"},
            "start() of the flush strategy 'odd'",
        ),
        "optional property": (
            offering(flush, lambda *_: of(Flush(), waits_for_disk=property(fault))),
            {"flush": "odd"},
            "waits_for_disk of the flush strategy 'odd'",
        ),
        "property": (
            offering(writer, lambda *_: of(FileWriter(0), **in_property)),
            {"writer": "odd"},
            "an attribute of the writer 'odd'",
        ),
        "resume": (
            offering(Kind.DISPATCHER, lambda *_: of(Derived(), resume=fault)),
            {"dispatchers": ("odd",)},
            "resume() of the dispatcher 'odd'",
        ),
        "default": (
            offering(
                flush,
                lambda *_: Flush(),
                settings=attrs.make_class("S", {"every": attrs.field(factory=fault)}),
            ),
            {"flush": "odd"},
            "the default settings of the flush strategy 'odd'",
        ),
        "infer": (
            offering(flush, lambda *_: Flush(), infer=fault),
            {"flush": "odd"},
            "infer of the flush strategy 'odd'",
        ),
    }


@pytest.mark.parametrize("place", places(KeyError()))
@pytest.mark.parametrize("error", [ZeroDivisionError("boom"), OSError("boom"), KeyError("boom")])
def test_an_error_of_a_plugin_names_it_and_what_was_called(
    tmp_path: Path, place: str, error: Exception
) -> None:
    given, settings, called = places(error)[place]
    with pytest.raises(PluginError) as caught:
        lakelog.open(tmp_path / "s", plugins=[given], segment_size_bytes=SEGMENT, **settings)
    assert f"plugin 'acme': {called} failed with {type(error).__name__}: " in str(caught.value)
    assert "boom" in str(caught.value)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("place", places(KeyError()))
def test_ctrl_c_and_errors_of_lakelog_pass(tmp_path: Path, place: str) -> None:
    for error in (KeyboardInterrupt(), StoreError("mine", path=tmp_path)):
        given, settings, called = places(error)[place]
        with pytest.raises(type(error)) as caught:
            lakelog.open(tmp_path / "s", plugins=[given], segment_size_bytes=SEGMENT, **settings)
        assert caught.value is error
        notes = getattr(error, "__notes__", [])
        expected = [f"raised by plugin 'acme': {called}"] if isinstance(error, LakelogError) else []
        assert notes == expected


def test_a_resume_beyond_the_end_of_the_log_is_refused(tmp_path: Path) -> None:
    """Records before it would never be dispatched."""
    with lakelog.open(tmp_path, plugins=[], segment_size_bytes=SEGMENT) as store:
        end = store.put(lakelog.Message("t", b"x")).end_offset
    given = offering(Kind.DISPATCHER, lambda *_: Derived(end + 1))
    with pytest.raises(PluginError, match=rf"returned {end + 1}, beyond the end of the log, {end}"):
        lakelog.open(tmp_path, plugins=[given], dispatchers=("odd",), segment_size_bytes=SEGMENT)


WRONG = [
    *("commitlog", "config", "lakelog", "checkpoint", "consumequeue", "index"),
    *("../precious", "", ".", "..", "/tmp", "a/b", "a\0b", 7, None),
]


@pytest.mark.parametrize("folder", WRONG)
def test_a_folder_of_a_plugin_is_its_own(tmp_path: Path, folder: Any) -> None:
    path, beside = tmp_path / "s", tmp_path / "precious"
    beside.mkdir()
    (beside / "file").write_text("x")
    with lakelog.open(path, plugins=[], segment_size_bytes=SEGMENT) as store:
        store.put(lakelog.Message("t", b"x"))
    before = tree(tmp_path)
    made = type("Wrong", (Derived,), {"directories": (folder,)})
    given: dict[str, Any] = {"plugins": [offering(Kind.DISPATCHER, lambda *_: made())]}
    for way in (rebuild, lakelog.open):
        with pytest.raises(BadStrategy, match=r"plugin 'acme': .*give one plain name"):
            way(path, dispatchers=("odd",), segment_size_bytes=SEGMENT, **given)
    assert tree(tmp_path) == before


def test_directories_that_are_no_list_are_refused(tmp_path: Path) -> None:
    made = type("Wrong", (Derived,), {"directories": "mine"})
    given: dict[str, Any] = {"plugins": [offering(Kind.DISPATCHER, lambda *_: made())]}
    with pytest.raises(BadStrategy, match="give a list of names of folders"):
        lakelog.open(tmp_path, dispatchers=("odd",), segment_size_bytes=SEGMENT, **given)


def test_two_dispatchers_have_no_folder_in_common(tmp_path: Path) -> None:
    made = type("Mine", (Derived,), {"directories": ("mine",)})
    factories = [Factory(Kind.DISPATCHER, name, NoSettings, lambda *_: made()) for name in "ab"]
    given = plugin("acme", **{Kind.DISPATCHER.value: lambda: factories})
    with pytest.raises(BadStrategy, match="'b' has the folder 'mine', which the dispatcher 'a'"):
        lakelog.open(tmp_path, plugins=[given], dispatchers=("a", "b"), segment_size_bytes=SEGMENT)
