"""The frame of every page: one HTML file that loads nothing, light or dark as the system is."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Mapping
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from typing import Final

from lakelog_cli.shown import shown

_STYLE: Final = """
:root{--back:#fff;--text:#1b1f24;--soft:#57606a;--line:#d0d7de;--main:#0b7a75;--fill:#0b7a7533;
--bad:#c62828;--empty:#eef1f4;color-scheme:light dark}
@media(prefers-color-scheme:dark){:root{--back:#0d1117;--text:#e6edf3;--soft:#9198a1;--line:#30363d;
--main:#4fd1c5;--fill:#4fd1c533;--bad:#ff7b72;--empty:#1c2128}}
body{background:var(--back);color:var(--text);font:15px/1.5 system-ui,sans-serif;max-width:1120px;
margin:0 auto;padding:1.5rem}
h1{font-size:1.4rem;overflow-wrap:anywhere}h2{font-size:1.05rem;margin:2rem 0 .5rem}
h3{font-size:1rem;font-weight:400;margin:1rem 0 .25rem}
p,.soft{color:var(--soft)}.facts{display:flex;flex-wrap:wrap;gap:.5rem 2rem}
.facts div{min-width:8rem}.facts b{display:block;font-size:1.25rem;overflow-wrap:anywhere}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,30rem),1fr));gap:0 2rem}
svg{width:100%}svg text{fill:var(--soft);font-size:11px}.axis{stroke:var(--line)}
.line{fill:none;stroke:var(--main);stroke-width:1.5}.area{fill:var(--fill)}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.2rem .6rem .2rem 0;
border-bottom:1px solid var(--line);font-weight:400;overflow-wrap:anywhere}
.bar{width:35%}.bar span{display:block;height:.8rem;background:var(--main);min-width:1px}
.bar div{position:relative}.bar i{position:absolute;top:.35rem;height:.1rem;min-width:1px;
background:var(--text)}.bar i.one{top:-.2rem;height:1.2rem;width:1px}
.small .bar{width:24%}
.map{display:flex;flex-wrap:wrap;gap:3px}.cell{width:18px;height:18px;background:var(--empty);
display:flex;align-items:flex-end}.cell span{display:block;width:100%;background:var(--main)}
.number{white-space:nowrap}td:first-child{min-width:5.5rem}
.damaged{outline:2px solid var(--bad)}.damaged span{background:var(--bad)}
.bad{color:var(--bad)}
"""


def document(title: str, parts: Iterable[str], made_ms: int | None = None) -> str:
    """The whole page.

    :param title: any text
    :param parts: HTML, such as of :func:`section` and :func:`facts`
    :param made_ms: time at which its content was read, in ms since 1970; by default now
    """
    made = datetime.fromtimestamp((time.time() * 1000 if made_ms is None else made_ms) / 1000, UTC)
    head, body = safe(title), "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{head}</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{_STYLE}</style></head><body>\n<h1>{head}</h1>\n{body}\n"
        f'<p class="soft">lakelog {version("lakelog-core")}, made at '
        f"{made:%Y-%m-%d %H:%M:%S}; times are UTC</p></body></html>\n"
    )


def facts(values: Mapping[str, str], bad: Container[str] = ()) -> str:
    """Short values with their names; those of ``bad`` are marked."""
    return f'<div class="facts">{"".join(_fact(*each, bad) for each in values.items())}</div>'


def _fact(name: str, value: str, bad: Container[str]) -> str:
    mark = ' class="bad"' if name in bad else ""
    return f'<div><span class="soft">{safe(name)}</span><b{mark}>{safe(value)}</b></div>'


def section(title: str, inner: str) -> str:
    """A part with a heading; ``inner`` is HTML."""
    return f"<section><h2>{safe(title)}</h2>{inner}</section>"


def paragraphs(lines: Iterable[str]) -> str:
    """A paragraph for each text."""
    return "".join(f"<p>{safe(line)}</p>" for line in lines)


def safe(text: str) -> str:
    """Text that cannot make elements, without control characters."""
    return escape(shown(text))
