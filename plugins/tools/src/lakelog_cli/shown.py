"""Escapes unprintable characters of untrusted text, so that it cannot control the terminal."""

from __future__ import annotations


def shown(text: str) -> str:
    r"""``text`` with control, format and unassigned characters written as escapes.

    >>> shown("a\tb"), shown("\x1b[2J"), shown("\u202etxt"), shown("标签")
    ('a\\tb', '\\x1b[2J', '\\u202etxt', '标签')
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
