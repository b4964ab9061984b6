"""`lakelog grep` opens the store with the settings of the command, in each of its processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

import lakelog as library
from plugins.tools.tests.cli.conftest import Run, lakelog

__all__ = ["lakelog"]  # a fixture
KEY: Final = "first:" + "5a" * 32


@pytest.fixture
def encrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of several segments with encrypted bodies, whose plugin is installed."""
    pytest.importorskip("cryptography")
    info = tmp_path / "site" / "encrypting-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: encrypting\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[lakelog]\nencrypting = examples.encrypt_bodies\n")
    monkeypatch.syspath_prepend(info.parent)
    given: dict[str, Any] = {"append": "encrypt", "encrypt": {"keys": (KEY,)}}
    with library.open(tmp_path / "logs", segment_size_bytes=65536, **given) as store:
        store.put_batch(
            [library.Message("t", b"order %d" % at + b"." * 900, queue_id=0) for at in range(300)]
        )
    return tmp_path / "logs"


def test_encrypted_bodies_are_searched(lakelog: Run, encrypted: Path) -> None:
    given = ("--set", "append=encrypt", "--set", f'encrypt.keys=["{KEY}"]')
    done = lakelog("grep", "-c", "order 7", encrypted, "--processes", 2, *given)
    assert (done.stdout.strip(), done.returncode) == ("11", 0), done.stderr
