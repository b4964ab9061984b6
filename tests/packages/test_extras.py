"""``pip install lakelog[EXTRA]``: the wheels as they are built, and what their metadata bring.

Each extra has an environment of its own with nothing else in it, and does there what README.md
says. No package is downloaded: what others made is linked from here.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import lz4.frame
import pytest
import zstandard

from tests.packages.environment import Environment, brought, size_bytes
from tests.packages.projects import ROOT
from tests.support.required import missing

pytestmark = pytest.mark.timeout(300)
README = ROOT / "README.md"
MOST_MB = {"with byte code": 100, "in wheels": 70}
"""Of ``pip install lakelog``: 94 and 67 in November 2026, of which 71 and 57 are NumPy."""
LAKEHOUSE = "pip install 'lakelog[lakehouse]'"
PUT = ("put", "shop", "orders", "one espresso", "two cakes", "--set", "segment_size_bytes=4MiB")


@pytest.fixture(scope="module")
def extra(
    installed: Path, tmp_path_factory: pytest.TempPathFactory, request: object
) -> Environment:
    """The environment of one extra, or of one distribution."""
    name = getattr(request, "param", "")
    made = Environment.make(tmp_path_factory.mktemp("environment"))
    if name and not name.startswith("lakelog-"):
        name = f"lakelog[{name}]"
    made.bring(name or "lakelog", installed)
    return made


Command = tuple[str, ...]


def lakelog(extra: Environment, cwd: Path, *commands: Command) -> list[str]:
    """Run commands that succeed; what each printed."""
    done = extra.lakelog(*commands, cwd=cwd)
    for command, (code, said) in zip(commands, done, strict=True):
        assert code == 0, (command, said)
    return [said for _, said in done]


def needs(
    extra: Environment, cwd: Path, remedy: str, *commands: Command, after: Sequence[Command] = ()
) -> None:
    """Check that each command is refused and names the remedy, ``after`` some that succeed."""
    done = extra.lakelog(*after, *commands, cwd=cwd)
    assert [code for code, _ in done[: len(after)]] == [0] * len(after), done
    for command, (code, said) in zip(commands, done[len(after) :], strict=True):
        assert code == 2, (command, said)
        assert remedy in " ".join(said.split()), (command, said)
        assert "Traceback" not in said


def there(extra: Environment, *modules: str) -> list[str]:
    """Which of the modules an environment has."""
    program = (
        "import sys; from importlib.util import find_spec; print(*filter(find_spec, sys.argv[1:]))"
    )
    return extra.run("-c", program, *modules, cwd=ROOT).split()


def test_native_is_found_once_it_is_installed(
    installed: Path, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    """As `make setup` has built and installed it: one extension for all versions of Python."""
    if find_spec("lakelog_native") is None:
        missing("lakelog-native is not installed: run make setup with Rust (cargo)")
    assert "cp311-abi3-" in (distribution("lakelog-native").read_text("WHEEL") or "")
    made = Environment.make(tmp_path_factory.mktemp("environment"))
    made.bring("lakelog[native]", installed)
    _, active = lakelog(made, tmp_path, PUT, ("plugins", "--store", "shop"))
    assert "accelerator native [active]" in active


@pytest.mark.parametrize("extra", [""], indirect=True)
def test_without_extras_commands_of_the_lakehouse_name_the_one_that_brings_them(
    extra: Environment, tmp_path: Path
) -> None:
    commands = ("dispatch", "shop"), ("lake", "shop"), ("sql", "shop")
    needs(extra, tmp_path, LAKEHOUSE, *commands, after=[PUT, ("verify", "shop", "--all")])


def test_without_extras_it_is_small(installed: Path) -> None:
    for kind, most in MOST_MB.items():
        compiled = kind == "with byte code"
        sizes = {
            each.name: size_bytes(each, compiled=compiled) / 1e6
            for each in brought("lakelog", installed)
        }
        assert sum(sizes.values()) < most, sorted(sizes.items(), key=lambda each: -each[1])


PACKED = """
import lakelog
from lakelog.errors import LakelogError
from lakelog.format.compression import decompress
from lakelog.format.layout import COMPRESSED
for way in (0x100, 0x200):
    try:
        print(decompress(bytes.fromhex(BODIES[way]), COMPRESSED | way))
    except LakelogError as error:
        print(error)
"""
BODIES = {
    0x100: lz4.frame.compress(b"a cake").hex(),
    0x200: zstandard.ZstdCompressor().compress(b"a cake").hex(),
}


@pytest.mark.parametrize("extra", ["", "compression"], indirect=True)
def test_compressed_bodies_are_unpacked_or_name_the_extra(
    extra: Environment, tmp_path: Path
) -> None:
    said = extra.run("-c", f"BODIES = {BODIES}\n{PACKED}", cwd=tmp_path)
    if there(extra, "lz4"):
        assert said.split("\n") == ["b'a cake'", "b'a cake'", ""]
    else:
        assert said.count("pip install 'lakelog[compression]'") == 2
        assert "LZ4" in said
        assert "ZSTD" in said


@pytest.mark.parametrize("extra", ["lakehouse"], indirect=True)
def test_the_extra_lakehouse_lands_in_all_tables(extra: Environment, tmp_path: Path) -> None:
    assert there(extra, "pyspark", "lakelog_spark") == []
    commands: list[Command] = [PUT]
    for to in ("iceberg:lake", "delta:orders-delta", "parquet:orders-parquet"):
        commands.append(("dispatch", "shop", "--to", to, "--once"))
        commands.append(("lake", "verify", "shop", "--to", to))
    commands.append(("export", "shop", "--to", "all.jsonl", "--format", "jsonl"))
    commands.append(("sql", "shop", "select count(*) from messages", "--engine", "duckdb"))
    said = lakelog(extra, tmp_path, *commands)
    assert ["2 rows" in each for each in said[1:7:2]] == [True] * 3
    assert said[-1].split() == ["2"]


@pytest.mark.parametrize("extra", ["spark"], indirect=True)
def test_the_extra_spark_brings_pyspark_and_iceberg(extra: Environment, tmp_path: Path) -> None:
    program = "import pyspark, lakelog_spark as s; s.register; s.session; s.finish_write"
    extra.run("-c", program, cwd=tmp_path)
    to = ("--to", "iceberg:lake", "--table", "rocketmq.messages", "--engine", "processes")
    assert "2 rows" in lakelog(extra, tmp_path, PUT, ("dispatch", "shop", *to, "--once"))[1]


@pytest.mark.parametrize("extra", ["lakehouse"], indirect=True)
def test_without_pyspark_what_needs_it_says_how_to_get_it(
    extra: Environment, tmp_path: Path
) -> None:
    landed = [PUT, ("dispatch", "shop", "--to", "iceberg:lake", "--once")]
    commands = (
        ("sql", "shop", "select 1", "--engine", "spark"),
        ("lake", "compact", "iceberg:lake"),
        ("lake", "verify", "shop", "--to", "iceberg:lake", "--engine", "spark"),
        ("dispatch", "shop", "--to", "iceberg:lake", "--engine", "spark", "--once"),
        ("dispatch", "shop", "--to", "spark:lake", "--engine", "spark", "--once"),
    )
    needs(extra, tmp_path, "pip install 'lakelog[spark]'", *commands, after=landed)


WITHOUT_SPARK = """
import lakelog_spark
for use in (
    lambda: lakelog_spark.session(), lambda: lakelog_spark.register,
    lambda: lakelog_spark.finish_write,
):
    try:
        use()
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
"""


@pytest.mark.parametrize("extra", ["lakelog-spark"], indirect=True)
def test_lakelog_spark_goes_with_anybodys_pyspark(extra: Environment, tmp_path: Path) -> None:
    """Who only reads needs no pyiceberg."""
    assert there(extra, "pyspark", "pyiceberg", "deltalake") == []
    said = extra.run("-c", WITHOUT_SPARK, cwd=tmp_path)
    assert said.count("WrongSpark: this needs pyspark") == 3


OF_A_USER = """
import json, socket, struct

def send(broker, topic, body):
    host, _, port = broker.namesrv.rpartition(":")
    fields = dict(a="p", b=topic, c="TBW102", d="4", e="0", f="0", g="1", h="0", i="", j="0")
    header = json.dumps(dict(code=310, language="PYTHON", version=479, opaque=1, flag=0,
                             extFields=fields)).encode()
    with socket.create_connection((host, int(port)), 60) as sock, sock.makefile("rb") as stream:
        sock.sendall(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)
        length, of_header = struct.unpack(">ii", stream.read(8))
        assert json.loads(stream.read(length - 4)[:of_header])["code"] == 0

def test_one(rocketmq_broker):
    send(rocketmq_broker, "orders", b"espresso")
    assert [bytes(each.body) for each in rocketmq_broker.messages("orders")] == [b"espresso"]

def test_session(rocketmq_broker_session):
    send(rocketmq_broker_session, "orders", b"cake")
    assert len(rocketmq_broker_session.messages("orders")) == 1
"""


@pytest.mark.parametrize("extra", ["lakelog-broker[pytest]"], indirect=True)
def test_the_broker_brings_fixtures_for_pytest(extra: Environment, tmp_path: Path) -> None:
    (tmp_path / "test_of_a_user.py").write_text(OF_A_USER)
    said = extra.run("-m", "pytest", "-q", cwd=tmp_path)
    assert "2 passed" in said
    assert there(extra, "grpc", "pyarrow", "lakelog_lake") == []


@pytest.mark.parametrize("extra", ["broker"], indirect=True)
def test_the_extra_broker_brings_the_command(extra: Environment, tmp_path: Path) -> None:
    assert "--no-auto-create" in lakelog(extra, tmp_path, ("broker", "--help"))[0]
    needs(extra, tmp_path, LAKEHOUSE, ("broker", "shop", "--to", "iceberg:lake"))


def test_the_readme_begins_with_how_to_install_and_names_every_extra() -> None:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    first = "\n".join(README.read_text().splitlines()[:40])
    assert "pip install lakelog\n" in first
    named = set(re.findall(r"pip install 'lakelog\[(\w+)\]'", first))
    assert named == set(table["optional-dependencies"])


def test_off_linux_one_line_says_so(tmp_path: Path) -> None:
    program = (
        "import sys; sys.platform = 'win32'; sys.modules['fcntl'] = None\n"
        "try:\n    import lakelog\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.startswith("lakelog needs Linux")
    assert done.stdout.count("\n") == 1
