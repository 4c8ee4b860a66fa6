"""Files made to harm: nothing in them runs, and they are refused within seconds and within a GiB of memory."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from pipeline.sources.inert import Limits
from pipeline.sources.pickle_scalars import SCALAR_OPCODES
from pipeline.sources.pickle_structures import STRUCTURE_OPCODES
from pipeline.sources.pickled import ArrayValue, NumberList, PickleError, Placeholder, read_pickle
from pipeline.sources.torch_file import TorchFileError, read_torch_file

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
SECONDS = 20
DEEP = 1_000_000
COLLIDING = (1 << 61) - 1

# Reads one file in a process of its own and tells how it ended, how long it took and how much memory it had at most.
MEASURE = """
import json, sys, time
from pathlib import Path
from pipeline.sources.torch_file import TorchFileError, read_torch_file
start = time.perf_counter()
try:
    with read_torch_file(Path(sys.argv[1])):
        end = "read"
except TorchFileError as error:
    end = error.reason
# Not ru_maxrss: a child inherits its parent's, and that is a test run's.
lines = Path("/proc/self/status").read_text().splitlines()
peak = int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
print(json.dumps([end, time.perf_counter() - start, peak // 1024]))
"""


def measure(path: Path) -> str:
    """Return how reading `path` ended; it must not have taken long or a GiB."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path)], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    end, seconds, mebibytes = json.loads(done.stdout)
    assert seconds < SECONDS
    assert mebibytes < 1024
    return str(end)


def write_repeated(path: Path, unit: bytes, size: int, head: bytes = b"\x80\x02", tail: bytes = b"") -> Path:
    block = unit * (MIB // len(unit))
    with path.open("wb") as file:
        file.write(head)
        for _ in range(size // len(block)):
            file.write(block)
        file.write(tail)
    return path


# --- nothing runs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", ["os", "posix", "nt"])
@pytest.mark.parametrize("call", [b"R", b"\x81"])
def test_system_is_not_called(tmp_path: Path, module: str, call: bytes) -> None:
    marker = tmp_path / "marker"
    command = f"touch {marker}".encode()
    text = b"X" + len(command).to_bytes(4, "little") + command

    found = read_pickle(b"\x80\x02c" + module.encode() + b"\nsystem\n" + text + b"\x85" + call + b".")

    assert isinstance(found.value, Placeholder)
    assert found.seen_classes == {f"{module}.system"}
    assert not marker.exists()


@pytest.mark.parametrize(
    "function", [b"builtins\neval", b"__builtin__\nexec", b"subprocess\nPopen", b"builtins\ngetattr"]
)
def test_nothing_is_imported_or_evaluated(tmp_path: Path, function: bytes) -> None:
    marker = tmp_path / "marker"
    code = f"open({str(marker)!r}, 'w')".encode()

    found: Any = read_pickle(b"c" + function + b"\nX" + len(code).to_bytes(4, "little") + code + b"\x85R.")

    assert isinstance(found.value, Placeholder)
    assert found.value.args == (code.decode(),)
    assert not marker.exists()


def test_modules_named_are_not_imported() -> None:
    read_pickle(b"cantigravity\nfly\n)R0(iantigravity\nfly\n0canti\ngravity\n)\x81}b.")

    assert "antigravity" not in sys.modules


def test_setstate_and_constructors_do_not_run() -> None:
    found: Any = read_pickle(b"ccollections\nOrderedDict\n)R}(X\x0c\x00\x00\x00__setstate__cos\nsystem\nub.")

    assert found.value == {}


# --- deep and self-containing values --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stream",
    [
        b"]" * DEEP + b"a" * (DEEP - 1) + b".",
        b")" + b"\x85" * DEEP + b".",
        b"}" + b"K\x00}" * DEEP + b"s" * DEEP + b".",
        b"cfoo\nbar\nq\x00" + b"h\x00" * 300_000 + b")" + b"\x85R" * 300_000 + b".",
        b"cfoo\nbar\n)R" + b"q\x00cfoo\nbar\n)R}X\x01\x00\x00\x00ah\x00sb" * 100_000 + b".",
        b"(" * 300_000 + b"N" + b"t" * 300_000 + b".",
        b"(" * 300_000 + b"l" * 300_000 + b".",
    ],
    ids=["lists", "tuples", "dicts", "calls", "states", "marked tuples", "marked lists"],
)
def test_depth_is_no_recursion(stream: bytes) -> None:
    found = read_pickle(stream)

    assert type(found.value) in {list, tuple, dict, Placeholder}
    del found
    gc.collect()


def test_deep_tuples_are_not_hashed() -> None:
    stream = b"})" + b"\x85" * DEEP + b"Ns."

    assert read_pickle(stream).value == {"<tuple key 1>": None}


def test_doubling_costs_nothing() -> None:
    stream = b"}" + b")" + b"2\x86" * 5000 + b"q\x00Ns\x8f(h\x00\x90."

    assert read_pickle(stream).value == {"<tuple key 2>"}


def test_values_that_contain_themselves() -> None:
    found: Any = read_pickle(
        b"]q\x00(h\x00}q\x01X\x01\x00\x00\x00dh\x01scfoo\nbar\n)Rq\x02}X\x01\x00\x00\x00sh\x02sbe."
    ).value

    assert found[0] is found
    assert found[1]["d"] is found[1]
    assert found[2].state["s"] is found[2]
    assert repr(found[2]) == "<placeholder foo.bar>"
    assert found[2] == found[2]
    assert hash(found[2]) == hash(found[2])


def test_long_names_are_cut() -> None:
    found: Any = read_pickle(b"c" + b"m" * 100_000 + b"\n" + b"n" * 100_000 + b"\n)R.")

    assert len(repr(found.value)) < 100
    assert all(len(name) <= 200 for name in found.seen_classes)


# --- claims ---------------------------------------------------------------------------------------------------------


def test_huge_memo_index_costs_nothing() -> None:
    assert read_pickle(b"K\x07r\xff\xff\xff\xff0j\xff\xff\xff\xff.").value == 7
    assert read_pickle(b"K\x07p99999999999999999999\n0g99999999999999999999\n.").value == 7


@pytest.mark.parametrize("opcode", [b"\x8d", b"\x8e", b"\x96", b"\x95"])
@pytest.mark.parametrize("size", [10 << 30, (1 << 63) - 1, (1 << 64) - 1])
def test_claimed_sizes(opcode: bytes, size: int) -> None:
    with pytest.raises(PickleError, match="beyond the end"):
        read_pickle(b"\x80\x04" + opcode + size.to_bytes(8, "little") + b"abc.")


@pytest.mark.parametrize("opcode", [b"X", b"T", b"B"])
def test_claimed_sizes_of_4_bytes(opcode: bytes) -> None:
    with pytest.raises(PickleError, match="beyond the end"):
        read_pickle(opcode + b"\xff\xff\xff\xffabc.")


def test_huge_integers() -> None:
    for stream in (
        b"\x8b" + (100 * MIB).to_bytes(4, "little") + bytes(100 * MIB) + b".",
        b"I" + b"9" * MIB + b"\n.",
        b"L" + b"9" * MIB + b"L\n.",
    ):
        with pytest.raises(PickleError, match="integer"):
            read_pickle(stream)


def test_impossible_shapes() -> None:
    shapes = (b"(" + b"J\xff\xff\xff\x7f" * 70 + b"t", b"J\xff\xff\xff\xff\x85", b"G" + bytes(8) + b"\x85", b"]", b"N")
    for shape in shapes:
        stream = b"cnumpy.core.multiarray\n_reconstruct\n)R(K\x01" + shape
        stream += b"cnumpy\ndtype\nX\x02\x00\x00\x00i4\x85R\x89C\x04abcdtb."
        with pytest.raises(PickleError, match="impossible shape"):
            read_pickle(stream)


def test_array_without_elements_is_only_described() -> None:
    found: Any = read_pickle(b"cnumpy.core.multiarray\n_reconstruct\n)R.").value

    assert isinstance(found, ArrayValue)
    with pytest.raises(PickleError):
        found.item()


# --- budgets --------------------------------------------------------------------------------------------------------


def test_limits_are_the_callers() -> None:
    stream = b"(" + b"N" * 200_000 + b"l."

    with pytest.raises(PickleError, match="2 MiB of memory"):
        read_pickle(stream, Limits(max_bytes=2 * MIB))
    with pytest.raises(PickleError, match="100000 operations"):
        read_pickle(stream, Limits(max_operations=100_000))
    assert len(read_pickle(stream).value) == 200_000  # type: ignore[arg-type]


def test_numbers_in_the_file_are_not_charged() -> None:
    stream = b"](" + b"K\x01" * 1_000_000 + b"e."

    found: Any = read_pickle(stream, Limits(max_bytes=MIB)).value

    assert isinstance(found, NumberList)
    assert len(found) == found.total() == 1_000_000


def test_keys_made_to_collide_are_refused() -> None:
    keys = b"".join(b"\x8a\x0c" + (number * COLLIDING).to_bytes(12, "little") + b"N" for number in range(20_000))

    with pytest.raises(PickleError, match="too many"):
        read_pickle(b"}(" + keys + b"u.")


BOMBS: dict[str, tuple[bytes, bytes]] = {
    "lists": (b"", b"]"),
    "sets": (b"", b"\x8f"),
    "memo": (b"", b"]\x94"),
    "dropped": (b"", b"N0"),
    "calls": (b"cx\ny\nq\x00", b"h\x00)R"),
    "floats": (b"(", b"G\x01\x01\x01\x01\x01\x01\x01\x01"),
    "number lists": (b"", b"](" + b"K\x01" * 33 + b"e"),
    "small batches": (b"](" + b"K\x01" * 33 + b"e", b"(K\x01e"),
    "frames": (b"](K\x01", b"\x95" + bytes(8)),
    "texts": (b"", b"X\xfc\x0f\x00\x00" + "\U0001f600".encode() * 1023),
    "copies": (b"]q\x00(" + b"N" * 100_000 + b"e0c__builtin__\nlist\nq\x01", b"0h\x01h\x00\x85R"),
    "states": (
        b"}q\x00(" + b"".join(b"J" + n.to_bytes(4, "little") + b"N" for n in range(50_000)) + b"u0cx\ny\n)R",
        b"h\x00b",
    ),
    "line": (b"V", b"a"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs_end_in_time_and_memory(tmp_path: Path, bomb: str) -> None:
    head, unit = BOMBS[bomb]
    path = write_repeated(tmp_path / "bomb.pt", unit, (300 if bomb == "lists" else 160) * MIB, b"\x80\x02" + head)

    end = measure(path)
    path.unlink()

    assert "MiB of memory" in end or "limit" in end


def write_deflated(path: Path, unit: bytes, size: int, claimed: int) -> Path:
    """A zip archive with one deflated member that inflates to `size` bytes and says it were `claimed`."""
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = b"".join(deflater.compress(unit * MIB) for _ in range(size // MIB)) + deflater.flush()
    name = b"a/data.pkl"
    fixed = b"\x14\x00\x00\x00\x08\x00" + bytes(8)
    sizes = (
        len(packed).to_bytes(4, "little") + claimed.to_bytes(4, "little") + len(name).to_bytes(2, "little") + bytes(2)
    )
    local = b"PK\x03\x04" + fixed + sizes + name
    entry = b"PK\x01\x02\x14\x00" + fixed + sizes + bytes(14) + name
    start = len(local) + len(packed)
    end = (
        b"PK\x05\x06" + bytes(4) + b"\x01\x00\x01\x00" + len(entry).to_bytes(4, "little") + start.to_bytes(4, "little")
    )
    path.write_bytes(local + packed + entry + end + bytes(2))
    return path


@pytest.mark.parametrize("unit", [b"\x00", b"]"])
@pytest.mark.parametrize("claimed", [100, MIB, 200 * MIB, 0xFFFFFFF0])
def test_zip_bombs(tmp_path: Path, unit: bytes, claimed: int) -> None:
    path = write_deflated(tmp_path / "bomb.pt", unit, 200 * MIB, claimed)

    with pytest.raises(TorchFileError, match=r"limit|larger than it says"):
        read_torch_file(path)


def test_zip_bomb_in_a_process_of_its_own(tmp_path: Path) -> None:
    path = write_deflated(tmp_path / "bomb.pt", b"]", 1024 * MIB, 200 * MIB)

    assert "limit" in measure(path)


def test_opcodes_have_no_gap() -> None:
    assert len(SCALAR_OPCODES) + len(STRUCTURE_OPCODES) == len(SCALAR_OPCODES | STRUCTURE_OPCODES) == 68
