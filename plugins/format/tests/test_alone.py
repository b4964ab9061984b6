"""The examples of the README run, and load no other part of lakelog."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
WRITE = """
Path("commitlog").mkdir()
Path("commitlog/00000000000000000000").write_bytes(log)
"""
LOADED = """
import sys
print(*{name.partition(".")[0] for name in sys.modules if name.startswith("lakelog")})
"""


def test_the_examples_encode_and_decode_with_this_package_alone(tmp_path: Path) -> None:
    encode, decode = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    program = f"from pathlib import Path\n{encode}{WRITE}{decode}{LOADED}"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    message, end, loaded = done.stdout.splitlines()
    size = (tmp_path / "commitlog" / "00000000000000000000").stat().st_size
    assert message.startswith("orders 0 0 ['42'] b'hello'")
    assert end == f"whole records up to {size}"
    assert loaded == "lakelog_format"
