"""Run as a script: becomes the program of a service, which ends when who started it does.

``launch.py PARENT PROGRAM ARGUMENTS``; by path and without site-packages, as it is run each time a
service starts. Linux sends the signal when the parent's thread ends, however that happens; it stays
so over ``exec``. See prctl(2), ``PR_SET_PDEATHSIG``.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
NOT_RUN = 127
"""What a shell says of a program that it cannot run."""


def main() -> None:
    """Become the program."""
    parent, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):  # it ended before Linux was asked
        sys.exit(NOT_RUN)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be run: {error.strerror}\n")
        sys.exit(NOT_RUN)


if __name__ == "__main__":
    main()
