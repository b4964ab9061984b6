"""The example of the README is a plugin: the core puts through its strategy."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import lakelog

README = Path(__file__).parents[1] / "README.md"


def test_the_example_offers_a_strategy_that_works(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    plugin = ModuleType("example")
    exec(example, vars(plugin))
    with lakelog.open(tmp_path, plugins=[plugin], flush="each-put") as store:
        result = store.put(lakelog.Message("orders", b"hello"))
        assert store.flushed_offset >= result.end_offset
