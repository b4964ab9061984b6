"""Topics as names of tables and folders, from which the topics can be told again.

Letters, digits, ``-`` and ``_`` stand for themselves; all else, and what could be mistaken, as
``_xHH_`` with the number of the character in hexadecimal: ``_`` before an ``x``, both at the
beginning, and the ``d`` of ``dead_letters`` at the end, with which the tables of dead letters end.
A name that would be too long is cut, with a hash of the topic behind it; then only the table itself
tells the topic.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from lakelog.errors import SettingsError

TOPIC: Final = "{topic}"
DEAD_LETTERS: Final = "_dead_letters"
_ESCAPED: Final = re.compile(rf"[^A-Za-z0-9_-]|^[_-]|_(?=x)|d(?={DEAD_LETTERS[2:]}$)", re.ASCII)
_MOST: Final = 200
_ESCAPE: Final = re.compile(r"_x([0-9A-F]+)_")
_PIECE: Final = re.compile(r"_x[0-9A-F]+_|.")
_HASH_LENGTH: Final = 16
_CUT: Final = re.compile(rf"[A-Za-z0-9_-]+_xsha[0-9a-f]{{{_HASH_LENGTH}}}", re.ASCII)
"""No topic is encoded so: an ``s`` never follows ``_x``."""


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
    """The table of a topic; what stands for the topic has 200 characters at most."""
    name = encoded(topic)
    return template.replace(TOPIC, name if len(name) <= _MOST else _cut(name, topic))


def _cut(name: str, topic: str) -> str:
    """As much of ``name`` as fits before a hash; no escape is cut in two."""
    digest = hashlib.sha256(topic.encode(errors="surrogatepass")).hexdigest()[:_HASH_LENGTH]
    mark = f"_xsha{digest}"
    short = ""
    for piece in _PIECE.findall(name):
        if len(short) + len(piece) + len(mark) > _MOST:
            break
        short += piece
    return short + mark


def topics_beside(
    template: str, names: Iterable[str], marked: Callable[[str], str | None]
) -> Iterator[str]:
    """The topics that have tables under ``template``; what is somebody else's is left out.

    :param names: the last part of the name of each table that is there
    :param marked: the topic that a table, of which it is given the whole name, says it is for
    """
    before, _, behind = re.split(r"[./]", template)[-1].partition(TOPIC)
    for last in names:
        inner = last[len(before) : len(last) - len(behind)]
        if f"{before}{inner}{behind}" != last or not _may_be_a_topics(inner):
            continue
        name = template.replace(TOPIC, inner)
        topic = marked(name)
        if topic is not None and named(template, topic) == name:
            yield topic


def _may_be_a_topics(name: str) -> bool:
    return _CUT.fullmatch(name) is not None or decoded(name) is not None
