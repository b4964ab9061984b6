"""``python -m lakelog``: the command line, if ``lakelog`` is not on the PATH."""

import sys
from importlib import import_module
from importlib.util import find_spec

if __name__ == "__main__":
    if find_spec("lakelog_cli") is None:
        sys.stderr.write("lakelog has no command line here: pip install lakelog-tools\n")
        sys.exit(2)
    import_module("lakelog_cli.main").run()
