"""SQL92 expressions: parsing, three-valued logic, and members that subscribe with one.

That results of random expressions are RocketMQ's is shown in tests/takeover.
"""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog import Message, Store
from lakelog.errors import SettingsError
from lakelog_queues.groups.property_filter import PropertyFilter
from plugins.queues.tests.groups.support import bodies, fill
from tests.support.waiting import until

SOME = {"a": "6", "region": "eu", "text": "it's", "big": "3000000000", "flag": "True"}
TRUE = [
    "a > 5 AND region = 'eu'",
    "a = 6 and a = 6.0 and a = '6' and not (a = '6.0')",
    "a BETWEEN 6 AND 7 AND a NOT BETWEEN 7 AND 9 AND -7 < a",
    "region IN ('us', 'eu') AND region NOT IN ('us')",
    "missing IS NULL AND a IS NOT NULL",
    "text = 'it''s' AND text CONTAINS '''' AND text STARTSWITH 'it' AND text ENDSWITH 's'",
    "text NOT CONTAINS 'x' AND NOT (text STARTSWITH 's')",
    "big > 2999999999 AND big > 5.5",
    "flag = TRUE",
    "a > 5 -- more\n AND /* or * less */ TRUE",
    "missing > 5 OR a > 5",
    "NOT (missing > 5 AND a < 5)",
    "missing = other",
    "(" * 49 + "a = 6" + ")" * 49,
    " OR ".join(f"a = {each}" for each in range(5000)),
]
FALSE = [
    *("a > 6", "missing > 5", "NOT (missing > 5)", "missing <> 'x'", "missing NOT IN ('x')"),
    *("missing NOT CONTAINS 'x'", "missing > 5 AND a > 5", "region > 5", "region > 5 OR a > 5"),
    *("big = 5", "a", "NULL", "text CONTAINS ''"),
]


@pytest.mark.parametrize("text", TRUE, ids=range(len(TRUE)))
def test_true(text: str) -> None:
    assert PropertyFilter(text).matches(SOME)


@pytest.mark.parametrize("text", FALSE)
def test_false_unknown_or_without_result(text: str) -> None:
    assert not PropertyFilter(text).matches(SOME)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "character 1: the end is not expected"),
        ("a >", "character 4: the end is not expected"),
        ("a > 5 b", "character 7: AND, OR or the end is expected, not b"),
        ("a ~ 5", "character 3: '~'"),
        ("a = 'x", 'character 5: "\'"'),
        ("a > 'x'", "only numbers have an order"),
        ("a = NULL", "use IS NULL"),
        ("TRUE = 5", "a condition is equal to no number"),
        ("5", "a condition is needed"),
        ("a AND 5", "a condition is needed"),
        ("5 IN ('a')", "only a property"),
        ("a IN ()", "a text in 'single quotes' is expected"),
        ("a BETWEEN 5 AND 4", "5 is more than 4"),
        ("a BETWEEN 5 OR 6", "AND is expected, not OR"),
        ("a > 9223372036854775808", "out of range"),
        ("a > 0.0", "out of range"),
        ("(a > 5", "')' is expected, not the end"),
        ("(" * 51 + "a > 5" + ")" * 51, "more than 50 levels"),
        ("a" + " = b" * 51, "more than 50 levels"),
    ],
)
def test_mistakes_are_named_with_their_place(text: str, problem: str) -> None:
    with pytest.raises(SettingsError, match="is wrong at character") as raised:
        PropertyFilter(text)
    assert problem in str(raised.value)


@given(st.text(max_size=40))
def test_any_text_is_parsed_or_a_mistake(text: str) -> None:
    with suppress(SettingsError):
        PropertyFilter(text).matches({})


def test_a_member_gets_what_matches(store: Store) -> None:
    store.put_batch(
        [Message("t", b"%d" % n, queue_id=n % 2, properties={"n": str(n)}) for n in range(2000)]
    )
    assert store.wait_dispatched()
    chosen = "n >= 1990 OR n BETWEEN 3 AND 5"
    with store.subscribe("g", "t", start="earliest", filter=chosen) as one:
        found = one.poll(2)
        found += one.poll(4)
        while more := one.poll(2):
            found += more
        assert sorted(bodies(found)) == [3, 4, 5, *range(1990, 2000)]
        one.ack(*found)
        fill(store, 2)
        store.put(Message("t", b"2000", properties={"n": "2000"}))
        until(lambda: bodies(one.poll(1)) == [2000])
        with pytest.raises(SettingsError, match="all members of a group need the same"):
            store.subscribe("g", "t", filter="n > 3")
    with store.subscribe("g", "t", filter=chosen) as again:
        assert bodies(again.poll()) == [2000]


def test_a_retry_is_not_filtered(store: Store) -> None:
    fill(store, 1, properties={"n": "1"})
    with store.subscribe("g", "t", start="earliest", filter="n = 1") as one:
        (delivery,) = one.poll()
        one.nack(delivery, 0)
        until(lambda: [each.attempt for each in one.poll()] == [2])
