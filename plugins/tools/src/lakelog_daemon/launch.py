"""Script that becomes the program of a service, and ends when its parent does.

``launch.py PARENT PROGRAM ARGUMENTS``; run by path and without site-packages, to start fast. Linux
sends the signal when the parent's thread ends for any reason; the setting survives ``exec``. See
prctl(2), ``PR_SET_PDEATHSIG``.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
NOT_RUN = 127
"""The exit code that a shell returns for a program that it cannot run."""


def main() -> None:
    """Execute the program."""
    parent, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):  # the parent ended before prctl took effect
        sys.exit(NOT_RUN)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be run: {error.strerror}\n")
        sys.exit(NOT_RUN)


if __name__ == "__main__":
    main()
