"""What the site has beyond the pages in core/docs; a hook of MkDocs.

Made from the sources: the tables of settings, commands, errors and public names, a page for each
package and example. Links that lead out of core/docs lead to these pages, or become plain text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import typer.main
from mkdocs.structure.files import File

import lakelog
import lakelog.errors
from lakelog.registry import Registry
from lakelog.settings.effective import CORE
from lakelog_cli.app import make_app
from lakelog_cli.commands.man import Command, commands
from lakelog_cli.schema import (
    fields_of,
    first_line,
    inner_kinds,
    ivars_of,
    required_of,
    schema,
    type_text,
)

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = ROOT / "core" / "docs"
MARK: Final = re.compile(r"<!-- made by the site: (\w+) -->")
ROLE: Final = re.compile(
    r":(?:class|func|meth|data|mod|attr|exc):\s*<code>~?(?:[\w.]*\.)?(\w+)</code>"
)
LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#|mailto:)([^)#\s]+)(#[^)]*)?\)")


def extra_pages() -> dict[str, Path]:
    """The pages outside of core/docs by their place in the site."""
    packages = [*ROOT.glob("plugins/*/README.md"), *ROOT.glob("contrib/*/README.md")]
    found = {f"packages/{each.parent.name}.md": each for each in sorted(packages)}
    examples = [*ROOT.glob("examples/*.py"), *ROOT.glob("examples/*/run.py")]
    for each in sorted(examples):
        name = each.stem if each.stem != "run" else each.parent.name
        found[f"examples/{name}.md"] = each
    named = {"changelog": "CHANGELOG.md", "contributing": "CONTRIBUTING.md"}
    named |= {"security": "SECURITY.md", "contrib": "contrib/README.md"}
    return found | {f"{name}.md": ROOT / path for name, path in named.items()}


def on_config(config: Any) -> Any:
    """Fill the sections of the navigation that are lists of files."""
    pages = list(extra_pages())
    sections = {"PACKAGES": "packages/", "EXAMPLES": "examples/"}
    for entry in config.nav:
        for title, place in entry.items():
            if isinstance(place, str) and place in sections:
                entry[title] = [page for page in pages if page.startswith(sections[place])]
                entry[title] += ["contrib.md"] if place == "PACKAGES" else []
    return config


def on_files(found: Any, config: Any) -> Any:
    """Add the pages that are outside of core/docs."""
    for place, source in extra_pages().items():
        text = source.read_text()
        if source.suffix == ".py":
            text = f"# {place.split('/')[-1][:-3]}\n\n```python\n{text}```\n"
        found.append(File.generated(config, place, content=text))
    return found


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fill in the generated parts, and lead links to pages of the site."""
    place = page.file.src_uri
    source = extra_pages().get(place, DOCS / place)
    made = MARK.sub(lambda match: GENERATED[match[1]](), markdown)
    return made if source.suffix == ".py" else relinked(made, place, source)


def on_page_content(html: str, **_: Any) -> str:
    """Turn roles of docstrings, such as that of a class, into code with the last name."""
    return ROLE.sub(lambda match: f"<code>{match[1]}</code>", html)


def relinked(text: str, place: str, source: Path) -> str:
    """The text of a page with links to other files as links between pages of the site."""
    by_source = {path.resolve(): name for name, path in extra_pages().items()}

    def replace(match: re.Match[str]) -> str:
        target = (source.parent / match[3]).resolve()
        target = target / "README.md" if target.is_dir() else target
        if target.is_relative_to(DOCS):
            name = str(target.relative_to(DOCS))
        elif target in by_source:
            name = by_source[target]
        else:
            return match[2]  # a source file, which the site does not have
        relative = os.path.relpath(name, os.path.dirname(place) or ".")
        return f"{match[1]}[{match[2]}]({relative}{match[4] or ''})"

    return LINK.sub(replace, text)


def settings() -> str:
    """All settings of all installed plugins: a table for each section."""
    found = schema(Registry.load(None, os.environ).sections())
    own = {k: v for k, v in found["properties"].items() if v.get("type") != "object"}
    parts = ["## Of the store\n", _table(own)]
    for name, section in sorted(found["properties"].items()):
        if name not in own and name != CORE and section.get("properties"):
            parts.append(f"\n## `[{name}]`\n\n{_cell(section.get('description', ''))}\n")
            parts.append(_table(section["properties"]))
    return "\n".join(parts)


def _table(properties: dict[str, Any]) -> str:
    rows = ["| key | default | |", "| --- | --- | --- |"]
    for key, value in properties.items():
        default = value.get("default", "")
        shown = f"`{default}`" if default not in ("", [], {}) else ""
        rows.append(f"| `{key}` | {shown} | {_cell(value.get('description', ''))} |")
    return "\n".join(rows)


def _cell(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|").replace("\n", " ")


def all_commands() -> list[Command]:
    """The commands, those of installed plugins included."""
    app = make_app()
    Registry.load(None, os.environ).events.cli_commands(app)
    return list(commands(typer.main.get_command(app)))


def command_pages() -> str:
    """All commands with their arguments and options."""
    return "\n".join(line for each in all_commands() for line in _command(each))


def json_page() -> str:
    """What each command prints with ``--json``, and the fields of all objects."""
    printing = [(each, each.printed) for each in all_commands() if each.printed is not None]
    lines = ["## Commands\n", "| command | prints | objects |", "| --- | --- | --- |"]
    for command, printed in printing:
        how = "one object" if printed.is_document else "an object a line"
        how += ", with and without the option" if printed.is_always else ""
        names = " ".join(map(_link, printed.kinds)) or "any"
        lines.append(f"| `lakelog {command.path}` | {how} | {names} |")
    lines.append("\n## Objects\n")
    waiting, seen = [kind for _, printed in printing for kind in printed.kinds], list[type]()
    while waiting:
        kind = waiting.pop(0)
        if kind not in seen:
            seen.append(kind)
            waiting += [each for hint in fields_of(kind).values() for each in inner_kinds(hint)]
    return "\n".join([*lines, *map(_object, sorted(seen, key=lambda kind: kind.__name__))])


def _link(kind: type) -> str:
    return f"[{kind.__name__}](#{kind.__name__.lower()})"


def _object(kind: type) -> str:
    words, required = ivars_of(kind), required_of(kind)
    lines = [f"### {kind.__name__}\n", _cell(first_line(kind)), "\n| field | type | |"]
    lines.append("| --- | --- | --- |")
    for name, hint in fields_of(kind).items():
        links = {each.__name__: _link(each) for each in inner_kinds(hint)}
        shown = re.sub(r"\w+", lambda word, at=links: at.get(word[0], word[0]), type_text(hint))
        optional = "" if name in required else "; may be missing"
        text = _cell(words.get(name, ""))
        lines.append(f"| `{name}` | {_cell(shown)}{optional} | {text} |")
    return "\n".join([*lines, ""])


def _command(command: Command) -> Iterator[str]:
    yield f"\n## `lakelog {command.path}`\n\n    {command.usage}\n"
    yield command.help + "\n"
    if command.parameters:
        yield "| | default | |\n| --- | --- | --- |"
    for each in command.parameters:
        default = f"`{each.default}`" if each.default else "required" if each.is_required else ""
        yield f"| `{each.names.replace('|', ' ')}` | {default} | {_cell(each.help)} |"


def errors() -> str:
    """The tree of errors, and each with its docstring."""
    text = lakelog.errors.__doc__ or ""
    tree = text.partition("::\n")[2].partition("\nA message")[0]
    hidden = "\n    options:\n      show_root_heading: false\n"
    modules = (lakelog.errors, lakelog.errors)
    listed = "\n".join(f"::: {each.__name__}{hidden}" for each in modules)
    return f"```text{tree}```\n\n{listed}"


def api() -> str:
    """The public names of ``lakelog``."""
    first = ["open", "Store", "Message", "StoredMessage", "Producer", "Consumer", "GroupConsumer"]
    elsewhere = {*first, "LakelogError", "PutRefused"}  # the errors have a page
    names = [*first, *(each for each in lakelog.__all__ if each not in elsewhere)]
    hidden = "\n    options:\n      show_root_heading: false\n"
    return "\n\n".join(f"## `lakelog.{name}`\n\n::: {_home(name)}{hidden}" for name in names)


def _home(name: str) -> str:
    """The full name under which a public name is defined."""
    value = getattr(lakelog, name)
    return f"{value.__module__}.{value.__qualname__}"


GENERATED: Final[dict[str, Callable[[], str]]] = {
    "settings": settings,
    "commands": command_pages,
    "json": json_page,
    "errors": errors,
    "api": api,
}
