"""A path stays one that can be opened, whatever strategies made in it before an open ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from core.tests.registry.samples import plugin
from core.tests.store.faults import SeenFiles
from core.tests.store.support import open_small, read_small
from lakelog import Message
from lakelog.errors import NotAStore, PluginError
from lakelog.interfaces import Context, Factory, Kind, NoSettings


class Eager:
    """A dispatcher that makes its folder, and a file in it, in its constructor."""

    directories = ("eager",)

    def __init__(self, path: Path, then: str | None) -> None:
        folder = path / "eager"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "state").write_bytes(b"1")
        if then == "raises":
            raise RuntimeError("no luck")
        if then == "dies":
            os.kill(os.getpid(), signal.SIGKILL)

    def resume(self, minimum: int, end: int) -> int:
        return end

    def dispatch(self, batch: Any) -> None:
        """Builds nothing."""

    def truncate(self, end_offset: int) -> None:
        """Builds nothing."""

    def flush(self) -> None:
        """Builds nothing."""

    def close(self) -> None:
        """Builds nothing."""


def given(then: str | None = None) -> dict[str, Any]:
    """The arguments of an open with an eager dispatcher."""

    def make(_settings: object, context: Context) -> Eager:
        return Eager(context.path, then)

    offers = [Factory(Kind.DISPATCHER, "eager", NoSettings, make)]
    return {
        "plugins": [plugin("eagerly", lakelog_dispatchers=lambda: offers)],
        "dispatchers": ["consume-queue", "eager"],
    }


def is_usable(path: Path, **more: Any) -> bool:
    with open_small(path, **more) as store:
        store.put(Message("t", b"1", queue_id=0))
    with open_small(path, **more) as store:
        return len(list(store.scan())) == 1


def test_new_folders_are_named_durably(tmp_path: Path) -> None:
    """Each by a sync of the folder that it is in, before the first message."""
    files, path = SeenFiles(), tmp_path / "new" / "store"
    with open_small(path, files=files) as store:
        synced = {each for call, each in files.seen if call == "sync_dir"}
        assert {tmp_path, path.parent, path} <= synced
        store.put(Message("t", b"1", queue_id=0))


def test_a_folder_that_a_constructor_makes(tmp_path: Path) -> None:
    assert is_usable(tmp_path / "s", **given())
    assert not (tmp_path / "s" / "lakelog" / "new").exists()


@pytest.mark.parametrize("again", [given(), {}], ids=["with it", "without it"])
def test_an_open_that_failed_behind_it(tmp_path: Path, again: dict[str, Any]) -> None:
    with pytest.raises(PluginError, match="no luck"):
        open_small(tmp_path / "s", **given("raises"))
    with pytest.raises(NotAStore, match="no store is here"):
        read_small(tmp_path / "s")
    assert is_usable(tmp_path / "s", **again)


def test_an_open_that_was_killed_behind_it(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from core.tests.store.test_new_path import given, open_small\n"
        "open_small(Path(sys.argv[1]), **given('dies'))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "s")], check=False)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "s" / "eager" / "state").exists()
    assert is_usable(tmp_path / "s", **given())


def test_a_directory_of_something_else_is_refused_before_a_strategy_sees_it(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("work")
    with pytest.raises(NotAStore, match=r"thesis\.tex"):
        open_small(tmp_path, **given())
    assert [each.name for each in tmp_path.iterdir()] == ["thesis.tex"]


def test_an_open_that_failed_leaves_nothing_where_no_strategy_made_anything(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="'nowhere'"):
        open_small(tmp_path / "s", dispatchers=["nowhere"])
    assert list(tmp_path.iterdir()) == []
