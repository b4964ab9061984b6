"""The hooks of this package: commands, whose imports are deferred until their use, and a follower.

The follower ``lake`` runs ``lakelog dispatch`` for a store, configured in its settings::

    followers = ["lake"]

    [lake]
    to = "iceberg:/data/lake"
    options = ["--table", "rocketmq.messages", "--interval-ms", "200", "--compression", "lz4"]
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any, Final

import attrs

from lakelog.hooks import Context, Factory, Kind
from lakelog.hooks.hookspecs import hookimpl
from lakelog_daemon.arguments import hidden, lakelog

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

STOP_SECONDS: Final = 30.0
"""Time for the pass under way to end after a stop; the process is killed then, without loss."""


@attrs.frozen(kw_only=True)
class LakeSettings:
    """The section ``lake``: the destination of the messages.

    :ivar to: ``KIND:PATH`` as for ``lakelog dispatch --to``
    :ivar options: further options of ``lakelog dispatch``
    """

    to: str
    options: tuple[str, ...] = ()


class DispatchFollower:
    """Lands a store in tables, from a separate process."""

    def __init__(self, path: Path, settings: LakeSettings) -> None:
        self._path = path
        self._settings = settings
        self._options: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> Sequence[str]:
        """The command line of the process, which must inherit the file with its options.

        They may have the password of a catalog. Raises ``OSError`` if there can be no such file.
        """
        words = ["--to", self._settings.to, *self._settings.options]
        self._options = hidden(json.dumps(words))
        descriptor = self._options.fileno()
        os.set_inheritable(descriptor, True)
        return lakelog(descriptor, "dispatch", str(self._path))

    def start(self) -> None:
        """Start the process."""
        import subprocess

        command = self.command()
        assert self._options is not None
        with self._options as options:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=[options.fileno()]
            )

    def stop(self) -> None:
        """Stop the process after the pass under way; kill it after ``STOP_SECONDS``."""
        if self._process is None:
            return
        import subprocess

        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _make(settings: LakeSettings, context: Context) -> DispatchFollower:
    return DispatchFollower(context.path, settings)


LAKE: Final = Factory(
    Kind.FOLLOWER, "lake", LakeSettings, _make, "lands messages in tables (lakelog dispatch)"
)


@hookimpl
def lakelog_followers() -> Sequence[Factory]:
    """Offer ``lake``."""
    return [LAKE]


@hookimpl
def lakelog_cli_commands(app: Any) -> None:
    """Add ``lakelog dispatch``, ``export``, ``sql``, and those of ``lake``."""
    from lakelog import times
    from lakelog_lake.commands.dispatch import dispatch, export
    from lakelog_lake.commands.lake import app as lake
    from lakelog_lake.commands.sql import sql

    app.command()(dispatch)
    app.command(epilog=times.HELP)(export)
    app.command()(sql)
    app.add_typer(lake)
