"""Names that the core gives to modules of its libraries are those of the same objects."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import lakelog

CORE = Path(lakelog.__file__).parent
ALIAS = re.compile(r"^from (\w[\w.]*) import \*", re.MULTILINE)


def _name(file: Path) -> str:
    return ".".join(file.relative_to(CORE.parent).with_suffix("").parts).removesuffix(".__init__")


REAL = {
    _name(file): found[1]
    for file in CORE.rglob("*.py")
    if (found := ALIAS.search(file.read_text()))
}
"""The module of a library by the name that the core gives it."""


@pytest.mark.parametrize("name", REAL)
def test_all_public_names_are_the_same_objects(name: str) -> None:
    real, given = vars(import_module(REAL[name])), vars(import_module(name))
    named = [each for each, what in real.items() if not isinstance(what, ModuleType)]
    public = {each for each in real.get("__all__", named) if not each.startswith("_")}
    assert public
    assert {each for each in public if given.get(each) is not real[each]} == set()


def test_those_of_the_codec_too() -> None:
    import lakelog.codec
    import lakelog_format.codec

    assert {"lakelog.errors", "lakelog.interfaces", "lakelog.format.layout"} <= REAL.keys()
    for each in lakelog_format.codec.__all__:
        assert getattr(lakelog.codec, each) is getattr(lakelog_format.codec, each)
