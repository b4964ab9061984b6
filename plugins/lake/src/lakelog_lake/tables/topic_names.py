"""Encodes topics as names of tables and folders, and decodes them.

Letters, digits, ``-`` and ``_`` stand for themselves. All other characters, and ambiguous ones, are
written as ``_xHH_`` with the code point in hexadecimal. Ambiguous are a ``_`` before an ``x``, a
``_`` or ``-`` at the beginning, and the ``d`` of a final ``dead_letters``, which ends the names of
tables of dead letters. A name that would be too long is cut and gets a hash of the topic; then only
the table's own mark has the topic.
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
"""Separates the hash; not part of any encoded topic, as an ``s`` never follows ``_x``."""


def encoded(topic: str) -> str:
    """The encoded name of ``topic``.

    >>> encoded("orders"), encoded("%RETRY%a"), encoded("a.b"), encoded("a_x25_")
    ('orders', '_x25_RETRY_x25_a', 'a_x2E_b', 'a_x5F_x25_')
    """
    return _ESCAPED.sub(lambda found: f"_x{ord(found[0]):02X}_", topic)


def decoded(name: str) -> str | None:
    """The topic encoded as ``name``; ``None`` if ``name`` is not an encoded topic.

    >>> decoded("_x25_RETRY_x25_a"), decoded("a_dead_letters"), decoded("a b")
    ('%RETRY%a', None, None)
    """
    topic = _ESCAPE.sub(lambda found: chr(min(int(found[1], 16), 0x10FFFF)), name)
    return topic if topic and encoded(topic) == name else None


def is_template(text: str) -> bool:
    """Whether ``text`` contains ``{topic}``.

    Raises :class:`~lakelog.errors.SettingsError` if it is not in the last part, or there twice.
    """
    if TOPIC not in text:
        return False
    if text.count(TOPIC) > 1 or TOPIC not in re.split(r"[./]", text)[-1]:
        raise SettingsError(f"{text!r} must contain {TOPIC} once, in its last part", key="--table")
    return True


def named(template: str, topic: str) -> str:
    """The table of a topic; the part for the topic has at most 200 characters."""
    name = encoded(topic)
    return template.replace(TOPIC, name if len(name) <= _MOST else _cut(name, topic))


def _cut(name: str, topic: str) -> str:
    """The longest part of ``name`` that fits before a hash; escapes are not split."""
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
    """The topics with tables under ``template``; tables that lakelog did not mark are left out.

    :param names: the last part of the name of each existing table
    :param marked: returns the topic with which a table, given by its full name, is marked
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
