"""Packages without metadata, as in a frozen program: plugins are not left out in silence."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest

CODE = (
    "import sys\nsys.path.insert(0, sys.argv[1])\nimport lakelog\n"
    "given = {'plugins': []} if sys.argv[3:] else {}\n"
    "with lakelog.open(sys.argv[2], segment_size_bytes='1MiB', **given) as store:\n"
    "    print(store.put(lakelog.Message('t', b'x')).status.name)\n"
)
NEEDED = ("attr", "attrs", "pluggy", "numpy", "numpy.libs", "isal", "crcmod", "mmh3")
PLUGINS = ("lakelog_flush", "lakelog_queues")


def frozen(path: Path, modules: Iterable[str], metadata: Iterable[str] = ()) -> Path:
    """A folder with these modules, and the metadata of these packages only."""
    path.mkdir()
    for name in (*NEEDED, "lakelog", *modules):
        spec = find_spec(name.partition(".")[0])
        origin = None if spec is None else spec.origin
        if origin is not None:
            place = Path(origin).parent if Path(origin).stem == "__init__" else Path(origin)
            found = place.with_name(name) if "." in name else place
            if found.exists():
                (path / found.name).symlink_to(found)
    for name in metadata:
        folder = path / f"{name.replace('-', '_')}-1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    return path


def opened(folder: Path, *given: str) -> subprocess.CompletedProcess[str]:
    place = folder.parent
    command = [sys.executable, "-S", "-B", "-c", CODE, str(folder), str(place / "s"), *given]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=place)


@pytest.mark.parametrize(
    ("modules", "metadata", "lacking"),
    [
        (PLUGINS, (), "lakelog-core"),
        ((), (), "lakelog-core"),
        (PLUGINS, ("lakelog-core", "lakelog-queues"), "lakelog-flush"),
    ],
    ids=["none", "without the modules too", "of one plugin"],
)
def test_a_program_without_metadata_is_refused(
    tmp_path: Path, modules: tuple[str, ...], metadata: tuple[str, ...], lacking: str
) -> None:
    folder = frozen(tmp_path / "flat", modules, metadata)
    done = opened(folder)
    last = done.stderr.splitlines()[-1]
    assert f"PluginError: the metadata (.dist-info) of {lacking} is missing" in last
    assert f"--copy-metadata {lacking}" in last
    assert not (tmp_path / "s").exists()
    assert opened(folder, "plugins").stdout.strip() == "PUT_OK"  # it says what it wants


def test_a_core_that_is_installed_alone_goes_on(tmp_path: Path) -> None:
    done = opened(frozen(tmp_path / "flat", (), ("lakelog-core",)))
    assert done.stdout.strip() == "PUT_OK", done.stderr
