"""Random SQL92 expressions, most of them valid, and properties for them."""

from __future__ import annotations

from hypothesis import strategies as st

_NAMES = st.sampled_from(["a", "b", "$c", "TAGS", "_d1"])
_TEXTS = st.sampled_from(
    ["", "x", "xy", "it''s", "5", "-7", "1e3", "true", "FALSE", " 12 ", "1_0", "ü", "2.50"]
)
_NUMBERS = st.sampled_from(
    [
        "0",
        "5",
        "7L",
        "2147483647",
        "2147483648",
        "9223372036854775807",
        "9223372036854775808",
        "2.5",
        ".5e1",
        "5.",
        "1E400",
        "0.0",
        "012",
        "0x5",
    ]
)
_VALUES = st.one_of(_NAMES, _NAMES, _TEXTS.map("'{}'".format), _NUMBERS, _NUMBERS.map("-{}".format))
_ODD_VALUES = st.one_of(_VALUES, st.sampled_from(["TRUE", "false", "NULL", "+5", "-a", "- -5"]))


def _joined(*parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map(" ".join)


def _any_of(*words: str) -> st.SearchStrategy[str]:
    return st.sampled_from(words)


_LISTS = st.lists(_TEXTS.map("'{}'".format), min_size=1, max_size=6).map(
    lambda each: f"({', '.join(each)})"
)
_CONDITIONS = st.one_of(
    _joined(_VALUES, _any_of("=", "<>", "<", "<=", ">", ">="), _VALUES),
    _joined(_ODD_VALUES, _any_of("=", "<>", ">"), _ODD_VALUES),
    _joined(_NAMES, _any_of("is null", "IS NOT NULL")),
    _joined(_NAMES, _any_of("BETWEEN", "not between"), _VALUES, st.just("AND"), _VALUES),
    _joined(_NAMES, _any_of("IN", "NOT IN"), _LISTS),
    _joined(
        _ODD_VALUES,
        _any_of("", "NOT"),
        _any_of("contains", "STARTSWITH", "EndsWith"),
        _TEXTS.map("'{}'".format),
    ),
    _ODD_VALUES,
)

EXPRESSIONS = st.recursive(
    _CONDITIONS,
    lambda inner: st.one_of(
        _joined(inner, _any_of("AND", "or", "=", "<>"), inner),
        inner.map("({})".format),
        inner.map("NOT {}".format),
        inner.map("NOT ({})".format),
        inner.map("/* no * text */ {} -- a comment\n".format),
        inner.map("({}) IS NOT NULL".format),
    ),
    max_leaves=6,
)
PROPERTIES = st.dictionaries(
    _NAMES,
    st.one_of(
        _TEXTS,
        st.sampled_from(
            ["NaN", "-0.0", "0", "Infinity", "5f", "0x1p3", "+5", "9999999999", "2147483648", "٣"]
        ),
        st.integers(-10, 10).map(str),
        st.floats().map(str),
        st.text(max_size=3),
    ),
)
