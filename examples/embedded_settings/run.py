"""How does an application keep the settings of its log in its own package?"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from myapp import open_log


def main(folder: Path) -> None:
    """Print the source of each setting, without and with an operator's override."""
    with open_log(folder / "plain") as store:
        print("flush =", store.settings.core.flush, "| from", store.settings.origins["flush"])
    os.environ["LAKELOG_FLUSH"] = "none"
    with open_log(folder / "overridden") as store:
        print("flush =", store.settings.core.flush, "| from", store.settings.origins["flush"])
        print("segment_size_bytes =", store.settings.core.segment_size_bytes)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
