"""Public modules under their former names are the modules of today, with a warning."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter

import pytest

import lakelog.files
import lakelog.interfaces
from lakelog.files.filesystem import FileSystem
from lakelog.runtime.former_names import FORMER

HERE = [former for former, name in FORMER.items() if find_spec(name.partition(".")[0])]


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*sys.modules]:
        if any(name == each or name.startswith(f"{each}.") for each in FORMER):
            monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize("former", HERE)
def test_the_module_is_the_same_one(former: str) -> None:
    name = FORMER[former]
    with pytest.warns(DeprecationWarning, match=f"{former} is {name} now"):
        found = import_module(former)
    assert found is import_module(name)
    assert found.__name__ == name
    assert found.__spec__ is not None
    assert found.__spec__.name == name


def test_modules_below_moved_along() -> None:
    with pytest.warns(DeprecationWarning, match="is lakelog_testing"):
        found = import_module("lakelog.testing.contracts.writer")
    assert found is import_module("lakelog_testing.contracts.writer")


def test_a_name_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"lakelog\.nothing"):
        import_module("lakelog.nothing")


def test_names_of_the_module_files_are_there_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match=r"lakelog\.files\.filesystem\.FileSystem"):
        assert lakelog.files.FileSystem is FileSystem
    with pytest.raises(AttributeError):
        lakelog.files.Nothing  # noqa: B018  # the look is what raises


def test_classes_of_strategies_are_there_by_former_names_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match="DeletionRate now"):
        assert attrgetter("Pace")(lakelog.interfaces) is lakelog.interfaces.DeletionRate
    with pytest.raises(AttributeError):
        attrgetter("Nothing")(lakelog.interfaces)
