"""``lakelog`` as a member of these tests: ``python -m tests.processes.command ARGUMENTS``."""

from __future__ import annotations

from lakelog_cli.main import run
from tests.processes.program import end_with_parent


def main() -> None:
    end_with_parent()
    run()


if __name__ == "__main__":
    main()
