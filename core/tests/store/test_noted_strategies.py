"""A store that another append callback or writer has filled is not opened to write without it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import lakelog
from core.tests.registry.samples import plugin
from core.tests.store.support import SEGMENT, fill, read_small, refused
from lakelog import Store
from lakelog.builtin import FileWriter, RocketmqAppendCallback
from lakelog.errors import MissingPlugin, PluginError
from lakelog.hooks import Context, Factory, Kind, NoSettings, WriterTraits
from lakelog_doctor.rebuild import rebuild
from lakelog_doctor.repair import repair


def changed(data: Any) -> bytes:
    return bytes(byte ^ 0x5A for byte in bytes(data))


class Changing(FileWriter):
    """A writer that stores other bytes than it is given."""

    traits = WriterTraits()

    def open(self, file: Any, size_bytes: int, position: int) -> Any:
        return _Segment(super().open(file, size_bytes, position))


class _Segment:
    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.commit, self.sync, self.close = inner.commit, inner.sync, inner.close
        self.extend = inner.extend

    def write(self, position: int, data: Any) -> None:
        self.inner.write(position, changed(data))

    def view(self, position: int, length: int) -> memoryview:
        return memoryview(changed(self.inner.view(position, length)))


def of_writer(_: Any, context: Context) -> Changing:
    return Changing(0)


def of_callback(_: Any, context: Context) -> RocketmqAppendCallback:
    return RocketmqAppendCallback.of(context.core)


KINDS = pytest.mark.parametrize(
    ("kind", "make", "key"),
    [(Kind.WRITER, of_writer, "writer"), (Kind.APPEND_CALLBACK, of_callback, "append")],
    ids=["writer", "append callback"],
)


def offering(kind: Kind, make: Any) -> Any:
    return plugin("acme", **{kind.value: lambda: [Factory(kind, "veiled", NoSettings, make)]})


def opened(path: Path, **more: Any) -> Store:
    return lakelog.open(path, **{"plugins": [], "segment_size_bytes": SEGMENT, **more})


@KINDS
def test_a_store_is_refused_without_the_strategy_that_wrote_it(
    tmp_path: Path, kind: Kind, make: Any, key: str
) -> None:
    given = {"plugins": [offering(kind, make)], key: "veiled"}
    with opened(tmp_path, **given) as store:
        fill(store, 10)
    noted = json.loads((tmp_path / "lakelog" / "strategies.json").read_text())
    assert noted[key]["name"] == "veiled"
    with refused(tmp_path, MissingPlugin, "'veiled' has stored its bytes", f"set {key} = 'veiled'"):
        opened(tmp_path)
    with refused(tmp_path, PluginError, "'veiled' has stored its bytes"):
        opened(tmp_path, plugins=given["plugins"])  # installed, and not chosen
    for way in (lakelog.recover, partial(lakelog.recover, dry_run=True), rebuild, repair):
        with refused(tmp_path, MissingPlugin, "'veiled' has stored its bytes"):
            way(tmp_path, plugins=[], segment_size_bytes=SEGMENT)
    read_small(tmp_path).close()


def test_with_the_strategy_it_is_opened_again(tmp_path: Path) -> None:
    given = {"plugins": [offering(Kind.APPEND_CALLBACK, of_callback)], "append": "veiled"}
    for _ in range(2):
        with opened(tmp_path, **given) as store:
            fill(store, 10)
    with opened(tmp_path, **given) as store:
        assert len(list(store.scan())) == 20
    lakelog.recover(tmp_path, plugins=given["plugins"], segment_size_bytes=SEGMENT)
    (tmp_path / "lakelog" / "strategies.json").unlink()  # the way on that the error names
    opened(tmp_path).close()


def test_writers_of_the_same_bytes_are_not_noted(tmp_path: Path) -> None:
    class Same(FileWriter):
        traits = WriterTraits(same_bytes=True)

    def make(_: Any, context: Context) -> Same:
        return Same(0)

    with opened(tmp_path, plugins=[offering(Kind.WRITER, make)], writer="veiled") as store:
        fill(store, 10)
    assert not (tmp_path / "lakelog" / "strategies.json").exists()
    with opened(tmp_path) as store:
        assert len(list(store.scan())) == 10
