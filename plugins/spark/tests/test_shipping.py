"""The zip file for executors holds lakelog with its plugins, and is enough to read a store."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from sysconfig import get_path

import lakelog
from lakelog_spark.shipping import write_zip

READ = """
import sys
archive, site, store = sys.argv[1:]
sys.path += [archive, site]  # without the .pth files by which the sources are installed
import lakelog, lakelog_spark, lakelog_spark.source, lakelog_lake
assert all(each.__file__.startswith(archive) for each in (lakelog, lakelog_spark, lakelog_lake))
with lakelog.open(store, mode="read") as reader:
    print(*(each.body.decode() for each in reader.scan()))
"""


def test_the_file_is_enough_to_read_a_store(tmp_path: Path) -> None:
    with lakelog.open(tmp_path / "store", segment_size_bytes=1 << 16) as store:
        store.put(lakelog.Message("t", b"one"))
        store.put(lakelog.Message("t", b"two"))
    archive = write_zip(tmp_path / "lakelog.zip")
    given = map(str, (archive, get_path("purelib"), tmp_path / "store"))
    command = [sys.executable, "-S", "-c", READ, *given]
    # It is installed here by its metadata, and not in the file, as it is compiled.
    environ = {**os.environ, "LAKELOG_DISABLE_PLUGINS": "native"}
    environ.pop("PYTHONPATH", None)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "one two\n"
