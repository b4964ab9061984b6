"""Builds the preload shim, and says why it cannot be built where it cannot."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("shim.c")


def missing() -> str | None:
    """What is missing to use the shim, or ``None``."""
    if shutil.which("cc") is None:
        return "no C compiler is here: apt-get install gcc libc6-dev (Debian, Ubuntu)"
    if platform.libc_ver()[0] != "glibc":
        return "the shim stands in for functions of glibc, and another C library is here"
    return None


def build(folder: Path) -> Path:
    """The shared object, compiled into ``folder``."""
    target = folder / "shim.so"
    command = ["cc", "-Wall", "-Werror", "-O1", "-shared", "-fPIC"]
    subprocess.run([*command, "-o", str(target), str(SOURCE), "-ldl"], check=True)
    return target
