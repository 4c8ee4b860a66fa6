"""Torch files: the fixtures, damaged files, other layouts, and what this project writes itself."""

from __future__ import annotations

import io
import json
import pickle
import struct
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.sources.inert import Limits
from pipeline.sources.pickled import ArrayValue, NumberList, PickleError, Placeholder
from pipeline.sources.torch_file import TorchFileError, read_torch_file
from pipeline.sources.writers import TorchAdapterRef, TorchRewardSpec, write_torch_dump
from tests.sources.inert_values import plain, touch

FIXTURES = Path(__file__).parents[1] / "fixtures"
DUMPS = sorted(path for path in FIXTURES.rglob("*.pt") if "partial" not in path.parts)
TENSORS = FIXTURES / "miles/single_run/rollout_data/2.pt"
TRAIN = FIXTURES / "miles/multilora_run/train_data/0_0.pt"
ADAPTERS = FIXTURES / "miles/multilora_run/rollout_data/0.pt"


def write_archive(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def write_pickle(path: Path, stream: bytes, **members: bytes) -> Path:
    return write_archive(path, {"a/data.pkl": stream} | {f"a/{name}": content for name, content in members.items()})


def tensor_stream(storage: str, count: int, layout: str) -> bytes:
    """A tensor with `layout` = offset, shape, strides; written as torch does."""
    offset, shape, strides = json.loads(layout)
    out = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\n" + storage.encode() + b"\n"
    out += b"X\x01\x00\x00\x000X\x06\x00\x00\x00cuda:1J" + struct.pack("<i", count) + b"tQ"
    for numbers in ([offset], shape, strides):
        packed = b"".join(b"J" + struct.pack("<i", number) for number in numbers)
        out += (
            packed if numbers == [offset] and numbers is not shape and numbers is not strides else b"(" + packed + b"t"
        )
    return out + b"\x89ccollections\nOrderedDict\n)RtR."


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: str(path.relative_to(FIXTURES)))
def test_fixtures(path: Path) -> None:
    with read_torch_file(path, checksum=True) as dump:
        payload: Any = dump.payload
        touch(payload, most=3000)

        assert "rollout_id" in payload
        assert not dump.unknown_classes


def test_adapters() -> None:
    with read_torch_file(ADAPTERS) as dump:
        samples = dump.payload["samples"]  # type: ignore[index]

        assert isinstance(samples[0]["adapter"], Placeholder)
        assert samples[0]["adapter"].state == {"name": "north", "slot": 0}
        assert samples[0]["reward_spec"].state == {"rm_type": "math", "custom_rm_path": None}


def test_tensors() -> None:
    with read_torch_file(TENSORS) as dump:
        pictured = [sample["multimodal_train_inputs"] for sample in dump.payload["samples"]]  # type: ignore[index]
        found = next(one for one in pictured if one)

        assert found["pixel_values"].dtype == "bfloat16"
        assert found["pixel_values"].shape == (6, 8)
        assert all(abs(value) < 100 for value in found["pixel_values"])
        assert found["image_grid_thw"].dtype == "int64"
        assert found["image_grid_thw"].size == 3
        assert found["image_grid_thw"].total() == sum(found["image_grid_thw"])


def test_train_dump() -> None:
    with read_torch_file(TRAIN) as dump:
        rows = dump.payload["rollout_data"]  # type: ignore[index]

        assert [mask.dtype for mask in rows["loss_masks"]] == ["int32"] * len(rows["loss_masks"])
        assert [len(mask) for mask in rows["loss_masks"]] == plain(rows["response_lengths"])


@pytest.mark.parametrize(
    ("name", "reason"),
    [("1.pt", "truncated"), ("2.pt", "empty file"), ("3.pt", "truncated")],
)
def test_damaged_fixtures(name: str, reason: str) -> None:
    with pytest.raises(TorchFileError, match=reason):
        read_torch_file(FIXTURES / "miles/partial/rollout_data" / name)


def test_trailing_junk_is_ignored() -> None:
    with read_torch_file(FIXTURES / "miles/partial/rollout_data/4.pt") as dump:
        assert dump.payload["rollout_id"] is not None  # type: ignore[index]


def test_every_truncation_is_an_error(tmp_path: Path) -> None:
    content = ADAPTERS.read_bytes()
    path = tmp_path / "0.pt"

    for length in [*range(0, len(content), 61), *range(len(content) - 200, len(content))]:
        path.write_bytes(content[:length])
        with pytest.raises(TorchFileError):
            read_torch_file(path)


@given(st.sampled_from([ADAPTERS, TENSORS]), st.data())
@settings(max_examples=200, deadline=None)
def test_damage_gives_a_value_or_the_one_error(path: Path, data: st.DataObject) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(-2000, -1))] = data.draw(st.integers(0, 255))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.sources.torch_file.OpenFile", lambda _: InMemory(bytes(content)))
        try:
            with read_torch_file(path) as dump:
                touch(dump.payload)
        except TorchFileError:
            return


class InMemory:
    def __init__(self, content: bytes) -> None:
        self.content = content
        self.size = len(content)

    def read(self, start: int, end: int) -> bytes:
        assert 0 <= start <= end
        if end > self.size:
            raise PickleError("read beyond the end of the file", start)
        return self.content[start:end]

    def close(self) -> None:
        pass


@pytest.mark.parametrize("content", [b"PK", b"hello", b"{}\n", b"\x1f\x8b\x08", b"PK\x03\x04" + bytes(100)])
def test_other_files(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "0.pt"
    path.write_bytes(content)

    with pytest.raises(TorchFileError):
        read_torch_file(path)


def test_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_torch_file(tmp_path / "none.pt")


def test_flipped_bit_is_found_by_the_checksum(tmp_path: Path) -> None:
    path = tmp_path / "0.pt"
    write_torch_dump(path, {"rollout_id": 0, "samples": [], "numbers": [70_000] * 100})
    path.write_bytes(path.read_bytes().replace(struct.pack("<i", 70_000), struct.pack("<i", 70_001), 1))

    read_torch_file(path).close()
    with pytest.raises(TorchFileError, match="checksum"):
        read_torch_file(path, checksum=True)


def test_bare_pickle(tmp_path: Path) -> None:
    path = tmp_path / "a.pkl"
    path.write_bytes(pickle.dumps({"a": [1] * 500}, 4))

    with read_torch_file(path) as dump:
        assert plain(dump.payload) == {"a": [1] * 500}


def legacy(payload: bytes, keys: list[str], storages: bytes) -> bytes:
    head = [pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})]
    return b"".join(head) + payload + pickle.dumps(keys, 2) + storages


def test_older_layout(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(legacy(pickle.dumps({"a": [1] * 500}, 2), [], b""))

    with read_torch_file(path) as dump:
        assert plain(dump.payload) == {"a": [1] * 500}


def test_older_layout_with_a_tensor(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    stream = tensor_stream("FloatStorage", 3, "[0, [3], [1]]")
    path.write_bytes(legacy(stream, ["0"], struct.pack("<q3f", 3, 1.5, 2, 3)))

    with read_torch_file(path) as dump:
        assert dump.payload.to_list() == [1.5, 2, 3]  # type: ignore[attr-defined]


def test_older_layout_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    stream = tensor_stream("FloatStorage", 3, "[0, [3], [1]]")
    path.write_bytes(legacy(stream, ["0"], struct.pack("<q2f", 3, 1.5, 2)))

    with pytest.raises(TorchFileError, match="cut short"):
        read_torch_file(path)


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize(
    ("storage", "dtype", "code", "values"),
    [
        ("FloatStorage", "float32", "f", [1.5, -2, 3, 0]),
        ("DoubleStorage", "float64", "d", [1.5, -2, 3, 0]),
        ("HalfStorage", "float16", "e", [1.5, -2, 3, 0]),
        ("BFloat16Storage", "bfloat16", "", [1.5, -2, 3, 0]),
        ("LongStorage", "int64", "q", [2**40, -1, 3, 0]),
        ("IntStorage", "int32", "i", [2**20, -1, 3, 0]),
        ("ShortStorage", "int16", "h", [300, -1, 3, 0]),
        ("CharStorage", "int8", "b", [3, -1, 3, 0]),
        ("ByteStorage", "uint8", "B", [200, 1, 3, 0]),
        ("BoolStorage", "bool", "?", [True, False, True, True]),
    ],
)
def test_tensor_types(  # noqa: PLR0917 -- a table
    tmp_path: Path, storage: str, dtype: str, code: str, values: list[Any], order: str
) -> None:
    sign = "<" if order == "little" else ">"
    if code:
        raw = struct.pack(f"{sign}4{code}", *values)
    else:
        halves = [struct.unpack(">I", struct.pack(">f", value))[0] >> 16 for value in values]
        raw = struct.pack(f"{sign}4H", *halves)
    path = write_archive(
        tmp_path / "a.pt",
        {
            "a/data.pkl": tensor_stream(storage, 4, "[1, [3], [1]]"),
            "a/byteorder": order.encode(),
            "a/data/0": raw,
        },
    )

    with read_torch_file(path) as dump:
        found: Any = dump.payload

        assert isinstance(found, ArrayValue)
        assert (found.dtype, found.shape) == (dtype, (3,))
        assert repr(found.to_list()) == repr([type(found.to_list()[0])(value) for value in values[1:]])
        assert found.total() == sum(values[1:])


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ("[0, [2, 3], [3, 1]]", [0, 1, 2, 3, 4, 5]),
        ("[0, [3, 2], [1, 3]]", [0, 3, 1, 4, 2, 5]),
        ("[1, [2], [3]]", [1, 4]),
        ("[2, [3, 2], [0, 1]]", [2, 3, 2, 3, 2, 3]),
        ("[5, [], []]", [5]),
        ("[0, [0], [1]]", []),
        ("[0, [2, 0, 3], [1, 1, 1]]", []),
    ],
)
def test_strides(tmp_path: Path, layout: str, expected: list[int]) -> None:
    raw = struct.pack("<6i", *range(6))
    path = write_archive(tmp_path / "a.pt", {"a/data.pkl": tensor_stream("IntStorage", 6, layout), "a/data/0": raw})

    with read_torch_file(path) as dump:
        assert dump.payload.to_list() == expected  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "layout", ["[0, [7], [1]]", "[6, [1], [1]]", "[0, [2], [6]]", "[0, [2, 2], [1]]", "[-1, [1], [1]]"]
)
def test_tensor_beyond_its_storage(tmp_path: Path, layout: str) -> None:
    raw = struct.pack("<6i", *range(6))
    path = write_archive(tmp_path / "a.pt", {"a/data.pkl": tensor_stream("IntStorage", 6, layout), "a/data/0": raw})

    with pytest.raises(TorchFileError, match="tensor"):
        read_torch_file(path)


def test_storage_smaller_than_it_says(tmp_path: Path) -> None:
    stream = tensor_stream("IntStorage", 6, "[0, [6], [1]]")
    path = write_archive(tmp_path / "a.pt", {"a/data.pkl": stream, "a/data/0": bytes(20)})

    with pytest.raises(TorchFileError, match="smaller than it says"):
        read_torch_file(path)


def test_storage_that_is_not_there(tmp_path: Path) -> None:
    path = write_pickle(tmp_path / "a.pt", tensor_stream("IntStorage", 6, "[0, [6], [1]]"))

    with read_torch_file(path) as dump:
        assert dump.payload.size == 6  # type: ignore[attr-defined]
        with pytest.raises(PickleError, match="not in this file"):
            dump.payload.total()  # type: ignore[attr-defined]


def test_huge_expanded_tensor_is_not_gathered(tmp_path: Path) -> None:
    stream = tensor_stream("IntStorage", 6, "[0, [2000000000, 2000000000], [0, 0]]")
    path = write_archive(tmp_path / "a.pt", {"a/data.pkl": stream, "a/data/0": bytes(24)})

    with read_torch_file(path) as dump, pytest.raises(PickleError, match="beyond"):
        dump.payload.total()  # type: ignore[attr-defined]


def test_closed_file(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    write_torch_dump(path, {"text": "x" * 9000})

    with read_torch_file(path) as dump:
        pass

    with pytest.raises(PickleError, match="closed"):
        dump.payload["text"].text()  # type: ignore[index]


def test_file_that_became_shorter(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    write_torch_dump(path, {"text": "x" * 900_000})

    with read_torch_file(path) as dump:
        path.write_bytes(b"")
        with pytest.raises(PickleError, match="became shorter"):
            dump.payload["text"].text()  # type: ignore[index]


# --- the archive itself ---------------------------------------------------------------------------------------------


def test_deflated_members(tmp_path: Path) -> None:
    value = {"numbers": list(range(5000)), "text": "x" * 10_000}
    stream = pickle.dumps(value, 2)
    path = write_archive(tmp_path / "a.pt", {"a/data.pkl": stream}, zipfile.ZIP_DEFLATED)

    with read_torch_file(path, checksum=True) as dump:
        assert plain(dump.payload) == value


def test_deflated_storage(tmp_path: Path) -> None:
    stream = tensor_stream("IntStorage", 6, "[0, [6], [1]]")
    members = {"a/data.pkl": stream, "a/data/0": struct.pack("<6i", *range(6))}
    path = write_archive(tmp_path / "a.pt", members, zipfile.ZIP_DEFLATED)

    with read_torch_file(path) as dump:
        assert dump.payload.total() == 15  # type: ignore[attr-defined]


def test_other_compression_is_refused(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "a.pt", {"a/data.pkl": b"\x80\x02N."}, zipfile.ZIP_BZIP2)

    with pytest.raises(TorchFileError, match="method 12"):
        read_torch_file(path)


@pytest.mark.parametrize("names", [[], ["data.pkl"], ["a/b/data.pkl"], ["a/data.pkl", "b/data.pkl"]])
def test_no_single_payload(tmp_path: Path, names: list[str]) -> None:
    path = write_archive(tmp_path / "a.pt", dict.fromkeys([*names, "a/other"], b"N."))

    with pytest.raises(TorchFileError, match=r"data\.pkl"):
        read_torch_file(path)


def test_two_members_of_one_name(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    write_archive(path, {"a/data.pkl": b"N.", "b/data.pkl": b"N."})
    path.write_bytes(path.read_bytes().replace(b"b/data.pkl", b"a/data.pkl"))

    with pytest.raises(TorchFileError, match="same name"):
        read_torch_file(path)


def test_overlapping_members(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    write_archive(path, {"a/data.pkl": b"N.", "a/data/0": b"0123456789"})
    content = bytearray(path.read_bytes())
    second = content.rfind(b"PK\x01\x02")
    content[second + 42 : second + 46] = bytes(4)
    path.write_bytes(content)

    with pytest.raises(TorchFileError, match="overlap"):
        read_torch_file(path)


def test_encrypted_archive(tmp_path: Path) -> None:
    path = write_pickle(tmp_path / "a.pt", b"N.")
    content = bytearray(path.read_bytes())
    content[content.rfind(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)

    with pytest.raises(TorchFileError, match="encrypted"):
        read_torch_file(path)


def test_zip64(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    with zipfile.ZipFile(path, "w") as archive, archive.open("a/data.pkl", "w", force_zip64=True) as member:
        member.write(pickle.dumps([1] * 500, 2))

    with read_torch_file(path) as dump:
        assert dump.payload == [1] * 500


def test_too_many_members(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "a.pt", {f"a/{number}": b"" for number in range(11)})

    with pytest.raises(TorchFileError, match="beyond the limit"):
        read_torch_file(path, Limits(max_members=10))


# --- writing --------------------------------------------------------------------------------------------------------

north = TorchAdapterRef("north", 1)
PAYLOAD: dict[str, Any] = {
    "rollout_id": 3,
    "metadata": {"prompt_group_sizes": [2]},
    "samples": [
        {
            "index": index,
            "tokens": [index, 300, 70_000] * 700,
            "loss_mask": [1] * 2000,
            "adapter": north,
            "name": "north",
        }
        for index in range(2)
    ],
}


@pytest.mark.parametrize("protocol", range(2, 6))
def test_written_dump_reads_back(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "3.pt"

    write_torch_dump(path, PAYLOAD, protocol=protocol)

    with read_torch_file(path, checksum=True) as dump:
        payload: Any = dump.payload
        for sample, expected in zip(payload["samples"], PAYLOAD["samples"], strict=True):
            assert isinstance(sample["tokens"], NumberList)
            assert plain(sample["tokens"]) == expected["tokens"]
            assert sample["adapter"].qualified == "miles.utils.types.AdapterRef"
            assert sample["adapter"].state == {"name": "north", "slot": 1}
        assert not dump.unknown_classes


def test_written_dump_has_the_layout_of_torch(tmp_path: Path) -> None:
    path = tmp_path / "3.pt"
    write_torch_dump(path, PAYLOAD)

    with zipfile.ZipFile(path) as archive:
        assert archive.namelist()[0] == "3/data.pkl"
        assert archive.read("3/byteorder").decode() == sys.byteorder
        assert archive.read("3/version") == b"3\n"
        for member in archive.infolist():
            local = path.read_bytes()[member.header_offset :][:30]
            data = member.header_offset + 30 + sum(struct.unpack("<HH", local[26:30]))
            assert data % 64 == 0
            assert member.compress_type == zipfile.ZIP_STORED


def test_written_stream_is_the_trainers(tmp_path: Path) -> None:
    path = tmp_path / "0.pt"
    write_torch_dump(path, [TorchAdapterRef("north", 0), TorchRewardSpec("math")])

    with zipfile.ZipFile(path) as archive:
        stream = archive.read("0/data.pkl")

    assert stream.startswith(
        b"\x80\x02]q\x00(cmiles.utils.types\nAdapterRef\nq\x01)\x81q\x02}q\x03(X\x04\x00\x00\x00name"
    )
    assert b"cmiles.utils.types\nRewardSpec\nq" in stream


def test_equal_payloads_are_equal_bytes(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    parted = {
        "".join(key): json.loads(json.dumps(value))
        if key != "samples"
        else [
            {
                **json.loads(json.dumps({name: entry for name, entry in sample.items() if name != "adapter"})),
                "adapter": TorchAdapterRef("NORTH".lower(), 1),
                "name": "NORTH".lower(),
            }
            for sample in value
        ]
        for key, value in PAYLOAD.items()
    }
    for sample in parted["samples"]:
        sample["name"] = sample.pop("name")
    shared = {**PAYLOAD, "samples": [{**sample} for sample in PAYLOAD["samples"]]}

    write_torch_dump(one / "3.pt", shared)
    write_torch_dump(two / "3.pt", parted)

    assert (one / "3.pt").read_bytes() == (two / "3.pt").read_bytes()


def test_writing_leaves_no_module_behind(tmp_path: Path) -> None:
    write_torch_dump(tmp_path / "0.pt", [TorchAdapterRef("north", 0)])

    assert not {"miles", "miles.utils", "miles.utils.types"} & set(sys.modules)


def test_archive_in_memory_is_never_needed(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("a/data.pkl", b"\x80\x02N.", compresslevel=0)
    path = tmp_path / "a.pt"
    path.write_bytes(stream.getvalue())

    with read_torch_file(path) as dump:
        assert dump.payload is None
