"""Writes dumps the way the trainers do: for tests, examples and benchmarks."""

from __future__ import annotations

import io
import pickle
import sys
import types
import zipfile
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_TYPES_MODULE: Final = "miles.utils.types"
_ALIGNMENT: Final = 64
_LOCAL_HEADER: Final = 30
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_PLAIN: Final = frozenset({int, float, bool, type(None)})
_lock = Lock()


@dataclass(frozen=True, slots=True)
class TorchAdapterRef:
    """An adapter of a sample; written as an object of the trainer's class `miles.utils.types.AdapterRef`."""

    name: str
    slot: int | None


@dataclass(frozen=True, slots=True)
class TorchRewardSpec:
    """A reward specification; written as an object of the trainer's class `miles.utils.types.RewardSpec`."""

    rm_type: str | None
    custom_rm_path: str | None = None


_WRITTEN_AS: Final[dict[type, type[Any]]] = {
    TorchAdapterRef: type("AdapterRef", (), {"__module__": _TYPES_MODULE}),
    TorchRewardSpec: type("RewardSpec", (), {"__module__": _TYPES_MODULE}),
}


def write_torch_dump(path: Path, payload: object, *, protocol: int = 2) -> None:
    """Write `payload` to `path` in the layout of `torch.save`: an uncompressed zip archive around one pickle.

    Equal payloads give equal bytes (sets excepted): text is shared where it is equal and containers are never shared,
    whatever objects the payload is made of. The archive folder is the file's stem, as with `torch.save`.

    Args:
        path: the file, replaced in place if it exists.
        payload: plain Python values, `TorchAdapterRef` and `TorchRewardSpec`; containers must not contain themselves.
        protocol: pickle protocol; torch uses 2.
    """
    folder = path.stem or "archive"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        _add(archive, f"{folder}/data.pkl", _pickle(payload, protocol))
        _add(archive, f"{folder}/.format_version", b"1")
        _add(archive, f"{folder}/.storage_alignment", str(_ALIGNMENT).encode())
        _add(archive, f"{folder}/byteorder", sys.byteorder.encode())
        _add(archive, f"{folder}/version", b"3\n")


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    member = zipfile.ZipInfo(name, _EPOCH)
    offset = archive.start_dir + _LOCAL_HEADER + len(name.encode()) + 4
    padding = -offset % _ALIGNMENT
    member.extra = b"FB" + padding.to_bytes(2, "little") + b"Z" * padding
    archive.writestr(member, content)


def _pickle(payload: object, protocol: int) -> bytes:
    stream = io.BytesIO()
    canonical = _Canonical().copy(payload)
    with _trainer_types():
        pickle.Pickler(stream, protocol).dump(canonical)
    return stream.getvalue()


@contextmanager
def _trainer_types() -> Iterator[None]:
    # A pickler looks a class up by name before it writes the name, so modules of the trainer's names must be there.
    module = types.ModuleType(_TYPES_MODULE)
    for stand_in in _WRITTEN_AS.values():
        setattr(module, stand_in.__name__, stand_in)
    with _lock:
        before = {name: sys.modules.get(name) for name in ("miles", "miles.utils", _TYPES_MODULE)}
        sys.modules |= {name: found or types.ModuleType(name) for name, found in before.items()}
        sys.modules[_TYPES_MODULE] = module
        try:
            yield
        finally:
            for name, found in before.items():
                if found is None:
                    del sys.modules[name]
                else:
                    sys.modules[name] = found


class _Canonical:
    """Copies a payload so that its pickle depends on values only: equal text is one object, containers are fresh."""

    def __init__(self) -> None:
        self._shared: dict[tuple[type, object], object] = {}

    def copy(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is dict:
            return {self.copy(key): self.copy(entry) for key, entry in value.items()}
        if kind is list:
            return list(value) if set(map(type, value)) <= _PLAIN else [self.copy(entry) for entry in value]
        if kind is tuple:
            return tuple([self.copy(entry) for entry in value])
        if kind in _WRITTEN_AS:
            return self._shared.get((kind, value)) or self._stand_in(value)
        return self._shared.setdefault((kind, value), value) if kind in {str, bytes} else value

    def _stand_in(self, value: TorchAdapterRef | TorchRewardSpec) -> object:
        stand_in = _WRITTEN_AS[type(value)]()
        stand_in.__dict__.update(self.copy(asdict(value)))
        self._shared[type(value), value] = stand_in
        return stand_in
