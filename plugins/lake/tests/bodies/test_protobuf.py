"""Protocol Buffers bodies as columns."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from lakelog.errors import SettingsError
from lakelog_lake.bodies.base import BodyParser
from lakelog_lake.bodies.formats import parser_for
from plugins.lake.tests.bodies.parsing import parse, rows_of
from plugins.lake.tests.bodies.protoschema import descriptor_set, event, event_class


def _parser(folder: Path, message: str = "shop.Event", data: bytes | None = None) -> BodyParser:
    (folder / "x.desc").write_bytes(descriptor_set() if data is None else data)
    return parser_for(f"protobuf:{folder / 'x.desc'}#{message}")


def test_a_message_is_a_row(tmp_path: Path) -> None:
    parser = _parser(tmp_path)
    full, empty = rows_of(parser, event(), b"")
    assert full == {
        "id": -1,
        "big": Decimal((1 << 64) - 1),
        "wide": (1 << 32) - 1,
        "name": "é",
        "raw": b"\xff",
        "colour": "BLUE",
        "at": datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
        "note": "",
        "empty": True,
        "colours": ["RED", "7"],
        "items": [{"n": 5}],
        "by_name": [("a", {"n": 2}), ("b", {"n": 1})],
        "maybe": "",
        "body_topic": True,
        "f": 0.5,
        "d": 0.25,
        "item": None,
    }
    unset = {key for key, value in empty.items() if value is None}
    assert unset == {"at", "note", "empty", "maybe", "item"}
    assert (empty["id"], empty["colour"], empty["items"]) == (0, "RED", [])
    assert parser.fields.field("at").type == pa.timestamp("us", "UTC")


def test_bad_bodies_are_told(tmp_path: Path) -> None:
    late = event_class()()
    late.at.seconds = 1 << 60
    bodies = (event(), b"\xff\xff", b"\x22\x01\xff", late.SerializeToString(), event()[:-1])
    found = parse(_parser(tmp_path), *bodies)
    assert found.good.tolist() == [True, False, False, False, False]
    assert "corrupt" in found.errors[0]
    assert "UTF-8" in found.errors[1]
    assert found.errors[2].endswith("days since 1970 are not in the years 1 to 9999")


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ("shop.Nobody", "there is no message shop.Nobody"),
        ("shop.Empty", "shop.Empty has no fields"),
        ("shop.Loop", "/next: shop.Loop contains itself"),
    ],
)
def test_messages_that_are_refused(tmp_path: Path, message: str, why: str) -> None:
    with pytest.raises(SettingsError, match="--body") as caught:
        _parser(tmp_path, message)
    assert why in str(caught.value)


def test_files_that_are_refused(tmp_path: Path) -> None:
    for data, why in (
        (b"\xff", "not a readable descriptor set"),
        (descriptor_set(imports=False), "imports"),
    ):
        with pytest.raises(SettingsError, match=rf"x\.desc: .*{why}"):
            _parser(tmp_path, data=data)


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = descriptor_set()
    monkeypatch.setitem(__import__("sys").modules, "google.protobuf.message", None)
    with pytest.raises(SettingsError, match=r"lakelog-lake\[protobuf\]"):
        _parser(tmp_path, data=data)
