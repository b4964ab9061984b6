"""Topics as names of tables and folders, from which the topics can be told again.

Letters, digits, ``-`` and ``_`` stand for themselves; all else, and what could be mistaken, as
``_xHH_`` with the number of the character in hexadecimal: ``_`` before an ``x``, both at the
beginning, and the ``d`` of ``dead_letters`` at the end, with which the tables of dead letters end.
"""

from __future__ import annotations

import re
from typing import Final

from lakelog.errors import SettingsError
from lakelog_spark.landing.errors import LandingError

TOPIC: Final = "{topic}"
DEAD_LETTERS: Final = "_dead_letters"
_ESCAPED: Final = re.compile(rf"[^A-Za-z0-9_-]|^[_-]|_(?=x)|d(?={DEAD_LETTERS[2:]}$)", re.ASCII)
_MOST: Final = 200
_ESCAPE: Final = re.compile(r"_x([0-9A-F]+)_")


def encoded(topic: str) -> str:
    """The name of ``topic``.

    >>> encoded("orders"), encoded("%RETRY%a"), encoded("a.b"), encoded("a_x25_")
    ('orders', '_x25_RETRY_x25_a', 'a_x2E_b', 'a_x5F_x25_')
    """
    return _ESCAPED.sub(lambda found: f"_x{ord(found[0]):02X}_", topic)


def decoded(name: str) -> str | None:
    """The topic whose name is ``name``; ``None`` if it is no topic's.

    >>> decoded("_x25_RETRY_x25_a"), decoded("a_dead_letters"), decoded("a b")
    ('%RETRY%a', None, None)
    """
    topic = _ESCAPE.sub(lambda found: chr(min(int(found[1], 16), 0x10FFFF)), name)
    return topic if topic and encoded(topic) == name else None


def is_template(text: str) -> bool:
    """Whether ``text`` has a place for the topic.

    Raises :class:`~lakelog.errors.SettingsError` for one that is not in its last part, or twice.
    """
    if TOPIC not in text:
        return False
    if text.count(TOPIC) > 1 or TOPIC not in re.split(r"[./]", text)[-1]:
        raise SettingsError(f"{text!r} must have {TOPIC} once, in its last part", key="--table")
    return True


def named(template: str, topic: str) -> str:
    """The table of a topic.

    Raises :class:`~lakelog_spark.landing.errors.LandingError` for one that is too long.
    """
    name = encoded(topic)
    if len(name) > _MOST:
        raise LandingError(
            f"topic {topic!r} makes a table name of {len(name)} characters; {_MOST} are possible: "
            "land it in a table with others"
        )
    return template.replace(TOPIC, name)


def topic_in(template: str, name: str) -> str | None:
    """The topic whose table has the last part ``name``; ``None`` if it is none of ``template``."""
    before, _, behind = re.split(r"[./]", template)[-1].partition(TOPIC)
    if not name.startswith(before) or not name.endswith(behind):
        return None
    return decoded(name[len(before) : len(name) - len(behind)])
