"""One file of named tensors with a JSON description: safetensors, written atomically, checked when read."""

import errno
import hashlib
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from cavia.errors import CaviaError, named, shown
from cavia.json_text import parse, parse_object
from cavia.temporaries import temporary

LONGEST_NAME = 255  # bytes, of one part of a path
MOST_TEXT = 2**28  # bytes of a file of text


def checked_path(path: str | PathLike[str]) -> Path:
    """The path, if there can be a file of that name."""
    if not isinstance(path, str | PathLike):
        raise CaviaError(f"a file's path must be a string or a Path, got {shown(path)}")
    text: Any = fspath(path)
    try:
        fits = isinstance(text, str) and all(len(os.fsencode(name)) <= LONGEST_NAME for name in Path(text).parts)
    except UnicodeEncodeError:
        fits = False
    if not fits or not text or "\0" in text:
        raise CaviaError(
            f"a file's path must be text without NUL characters and with names of at most {LONGEST_NAME} bytes, "
            f"got {shown(text)}"
        )
    return Path(text)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write that takes the place of `path` in one step when all of it is on the disk.

    A reader, or a crash at any moment, sees the old content or the new one; an error leaves the old one. A symbolic
    link stays one, and a file keeps its permissions. What is not a file, such as /dev/stdout, is written to directly.
    """
    try:
        target = Path(os.path.realpath(checked_path(path)))
        if target.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if path.exists() and not path.is_file():
            with path.open("wb") as stream:
                yield stream
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary(target) as unfinished:
            with unfinished.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            if target.exists():
                unfinished.chmod(target.stat().st_mode & 0o777)
            unfinished.replace(target)
    except OSError as error:
        raise CaviaError(f"cannot write {path}: {error.strerror or error}") from error


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the content of the file in one step."""
    with replacing(path) as file:
        file.write(content)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as readable JSON, atomically. JSON has no infinity: numbers that are not finite become null."""
    write_atomically(path, (_readable(json.loads(json.dumps(finite(value), allow_nan=False))) + "\n").encode())


def _readable(value: Any, indent: str = "") -> str:
    """JSON with one member of an object per line; lists without objects stand on one line, however deep."""
    inner = indent + "  "
    if isinstance(value, dict) and value:
        members = (f"{json.dumps(key)}: {_readable(member, inner)}" for key, member in value.items())
        return "{\n" + inner + f",\n{inner}".join(members) + f"\n{indent}}}"
    if isinstance(value, list) and _has_object(value):
        return "[\n" + inner + f",\n{inner}".join(_readable(member, inner) for member in value) + f"\n{indent}]"
    return json.dumps(value)


def _has_object(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(_has_object(member) for member in value))


def finite(value: Any) -> Any:
    """A JSON value with null for every number that is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in value.items()}
    return [finite(inner) for inner in value] if isinstance(value, list | tuple) else value


def read_json(path: Path) -> Any:
    """The JSON value in the file; an unreadable one is an error that names the file."""
    return parse(read_text(path), path)


def read_object(path: Path) -> dict[str, Any]:
    """The same, if it is a JSON object."""
    return parse_object(read_text(path), path)


def read_text(path: Path, errors: str = "strict") -> str:
    """The text of the file, in UTF-8; an unreadable one is an error that names the file. Devices have no end."""
    try:
        there = checked_path(path).stat()
        if not stat.S_ISREG(there.st_mode) and not stat.S_ISDIR(there.st_mode):
            raise CaviaError(f"cannot read {path}: it is a device or a pipe, not a file")
        if there.st_size > MOST_TEXT:
            raise CaviaError(f"{path} must have at most {MOST_TEXT:,} bytes, has {there.st_size:,}")
        return path.read_text(encoding="utf-8", errors=errors)
    except OSError as error:
        raise CaviaError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CaviaError(f"{path} is damaged or no text: byte {error.start} is not UTF-8") from error


def write_tensors(path: Path, tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> None:
    """Write tensors and a JSON description to one safetensors file, atomically, with a checksum of both.

    The same tensors and description give the same bytes.
    """
    from safetensors.torch import save

    for name, tensor in tensors.items():
        if tensor.is_meta:
            raise CaviaError(f"{name} is on the device 'meta', where it has no numbers to write; load them first")
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    text = json.dumps(description)
    content = memoryview(save(tensors, metadata={"cavia": text, "sha256": digest(tensors, text)}))
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(bytes(content[8:end])), sort_keys=True, ensure_ascii=False).encode()
    header += b" " * (-len(header) % 8)  # tensors begin at a multiple of 8
    with replacing(path) as file:
        file.writelines([len(header).to_bytes(8, "little"), header, content[end:]])


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the description of a file by `write_tensors`; anything else is an error that names the file."""
    with torch.device("cpu"), _opened(path) as file:  # whatever device is the default
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a mapping
    if metadata.get("sha256") != digest(tensors, metadata["cavia"]):
        raise CaviaError(f"{path} was changed after it was written: its checksum does not match")
    return tensors, parse_object(metadata["cavia"], f"the header of {path}", constants=True)


def read_description(path: Path) -> dict[str, Any]:
    """The description alone. The tensors are not read, so nothing is held to the checksum."""
    with _opened(path) as file:
        return parse_object(file.metadata()["cavia"], f"the header of {path}", constants=True)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A file by `write_tensors`, open; an error that names it if it is another."""
    from safetensors import SafetensorError, safe_open

    try:
        if not checked_path(path).is_file():
            raise CaviaError(f"there is no file {named(path)}")
        with safe_open(path, framework="pt") as file:
            if "cavia" not in (file.metadata() or {}):
                raise CaviaError(f"{path} holds tensors, but not a cavia learner or checkpoint")
            yield file
    except OSError as error:
        raise CaviaError(f"cannot read {path}: {error.strerror or error}") from error
    except SafetensorError as error:
        raise CaviaError(f"{path} is damaged or not a cavia file ({error})") from error


def digest(tensors: Mapping[str, Tensor], text: str) -> str:
    """SHA-256 of the text and of every tensor's name, type, shape and values, wherever the tensors are."""
    sha256 = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        sha256.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        sha256.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return sha256.hexdigest()
