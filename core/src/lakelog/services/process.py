"""One process of ours, as its owner holds it: started, told to stop, killed, waited for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Final

import attrs

from lakelog.errors import SettingsError
from lakelog.services.channel import Channel
from lakelog.services.order import Order

MODULE: Final = "lakelog.services.dispatch"
OF_THE_OWNER: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that come to a whole process group or control group: the owner stops its process in order
then. The process inherits them blocked, until it ignores them: else it would die while it starts.
"""


@attrs.define(eq=False)
class Process:
    """A process that runs, and our end of the channel.

    :ivar closed: what it said last: nothing yet, or how it ended (``None`` is in order)
    """

    channel: Channel
    _popen: subprocess.Popen[bytes]
    said_closed: bool = False
    error: str | None = None
    told_to_stop: bool = False

    @classmethod
    def start(cls, order: Order) -> Process:
        """Start one; raises ``OSError``.

        It is killed when the thread ends that called this.
        """
        channel, theirs = Channel.pair()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, OF_THE_OWNER)
        try:
            popen = subprocess.Popen(
                [interpreter(), "-P", "-m", MODULE, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(_search_path())},
            )
        except BaseException:
            channel.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        channel.send("start", **attrs.asdict(order))
        return cls(channel, popen)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._popen.pid

    def stop(self, *, finish: bool) -> None:
        """Tell it to stop in order."""
        self.told_to_stop = True
        self.channel.send("stop", finish=finish)

    @property
    def is_in_order(self) -> bool:
        """Whether it said that all is flushed and closed."""
        return self.said_closed and self.error is None

    def end(self, wait_s: float) -> int:
        """Wait until it is gone, kill it if that takes too long; the exit status."""
        try:
            return self._popen.wait(wait_s)
        except subprocess.TimeoutExpired:
            return self.kill()
        finally:
            self.channel.close()

    def kill(self) -> int:
        """Kill it now."""
        with suppress(OSError):
            self._popen.kill()
        status = self._popen.wait()
        self.channel.close()
        return status


def interpreter() -> str:
    """The program to run; raises :class:`~lakelog.errors.SettingsError` where none is known."""
    if not sys.executable:
        raise SettingsError(
            "the interpreter's own program is not known (sys.executable), so no process can be "
            "started; use services.dispatch = 'thread'",
            key="services.dispatch",
        )
    return sys.executable


def _search_path() -> list[str]:
    """Where modules are found here, for a process that may be started elsewhere."""
    return [os.path.abspath(each) for each in sys.path if os.pathsep not in each]
