"""Bytes as fastjson 1.2.83 writes them; its own output is the expected text."""

from __future__ import annotations

import pytest

from lakelog_rocketmq.fastjson import Entries, encode, encode_file, encode_for_browsers

_ALL = "".join(map(chr, range(0x100))) + "\u07ff\u2027\u2028\u2029\u202a\U0001d11e\uffff"
_CONTROLS = (
    r"\u0000\u0001\u0002\u0003\u0004\u0005\u0006\u0007\b\t\n\u000B\f\r\u000E\u000F\u0010\u0011"
    r"\u0012\u0013\u0014\u0015\u0016\u0017\u0018\u0019\u001A\u001B\u001C\u001D\u001E\u001F"
)
_HIGH = "".join(f"\\u{each:04X}" for each in range(0x7F, 0xA0))
_PRINTED = "".join(map(chr, range(0x20, 0x7F))).replace("\\", "\\\\").replace('"', '\\"')
_ROUTE = {
    "brokerDatas": [
        {
            "brokerAddrs": {0: "127.0.0.1:10911", 1: "h/1:2"},
            "brokerName": "broker-ä",
            "cluster": None,
        }
    ],
    "filterServerTable": {},
}


def test_all_characters() -> None:
    latin = "".join(map(chr, range(0xA0, 0x100)))
    plain = f"{_CONTROLS}{_PRINTED}{_HIGH}{latin}\u07ff\u2027\\u2028\\u2029\u202a\U0001d11e\uffff"
    assert encode(_ALL).decode() == f'"{plain}"'
    escaped = "".join(f"\\u{each:04X}" for each in range(0xA0, 0x100))
    tail = r"\u07FF\u2027\u2028\u2029\u202A\uD834\uDD1E\uFFFF"
    text = _PRINTED.replace("/", "\\/")
    assert encode_for_browsers(_ALL).decode() == f'"{_CONTROLS}{text}{_HIGH}{escaped}{tail}"'
    assert encode("x\ud800y") == b'"x?y"'


def test_a_route_has_no_blanks_and_only_new_clients_get_quoted_keys() -> None:
    assert encode(_ROUTE).decode() == (
        '{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:10911",1:"h/1:2"},"brokerName":"broker-ä"}],'
        '"filterServerTable":{}}'
    )
    assert encode_for_browsers(_ROUTE).decode() == (
        r'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10911","1":"h\/1:2"},'
        r'"brokerName":"broker-\u00E4"}],"filterServerTable":{}}'
    )


def test_numbers_nulls_and_objects_as_keys() -> None:
    values = {"a": None, "b": 1e7, "c": 0.0, "d": 1234567.25, "e": 1e-5, "f": [1, None], "h": True}
    expected = b'{"b":1.0E7,"c":0.0,"d":1234567.25,"e":1.0E-5,"f":[1,null],"h":true}'
    assert encode(values) == expected
    rows = Entries([({"queueId": 0}, -12345678.5), ({"queueId": 1}, 3)])
    assert encode({"t": rows}) == b'{"t":{{"queueId":0}:-1.23456785E7,{"queueId":1}:3}}'


@pytest.mark.parametrize("value", [{1, 2}, object()])
def test_what_is_no_json_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        encode({"a": value})


def test_a_file_keeps_nulls_and_breaks_no_line_before_an_integer_key() -> None:
    content = {"a": None, "b": {}, "offsetTable": {"t@g": {"0": 5, "-1": 9, "x": 1}, "7": 8}}
    assert encode_file(content, bare_keys=True).decode() == (
        '{\n\t"a":null,\n\t"b":{},\n\t"offsetTable":{'
        '\n\t\t"t@g":{0:5,-1:9,\n\t\t\t"x":1\n\t\t},7:8\n\t}\n}'
    )
