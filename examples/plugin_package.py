"""How does a store find a plugin that is a separate package?

By its entry point. This lets ``lakelog plugins new`` write a package, installs it into a temporary
folder, without downloads, and uses it in another process. For your own plugin, use ``pip install``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

OFFLINE = ["--no-index", "--no-deps", "--no-build-isolation", "--no-cache-dir"]

PROGRAM = """
import lakelog

# Nothing here names the package: its entry point says that it offers `acme-pace`.
settings = {"flush": "acme-pace", "acme-pace": {"appends": 10}, "segment_size_bytes": "1MiB"}
with lakelog.open("store", settings=settings) as store:
    for _ in range(25):
        store.put(lakelog.Message("orders", b"hello"))
    print(f"appended {store.max_offset}, durable {store.flushed_offset}")
"""


def main(folder: Path) -> None:
    """Write, install, use."""
    project, site = folder / "project", folder / "site"
    new = [sys.executable, "-m", "lakelog", "plugins", "new", "acme-pace", str(project)]
    subprocess.run([*new, "--kind", "flush-strategy"], check=True, stdout=subprocess.DEVNULL)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, *OFFLINE, "--target", str(site), str(project)], check=True)
    print("installed:", *sorted(each.name for each in site.iterdir()))
    environment = {**os.environ, "PYTHONPATH": str(site)}
    subprocess.run([sys.executable, "-c", PROGRAM], cwd=folder, env=environment, check=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
