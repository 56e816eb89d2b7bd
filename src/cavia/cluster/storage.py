"""Storage that all nodes of a cluster can reach: a folder, or any address that fsspec knows (s3://…, gs://…)."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cavia.errors import CaviaError, missing_package, named
from cavia.tensor_file import write_atomically


class Storage:
    """Files by name, below an address. Writes are atomic."""

    def __init__(self, address: str):
        self.address = address
        self.is_folder = "://" not in address
        if self.is_folder:
            self.address = str(Path(address).absolute())

    def read(self, name: str) -> bytes | None:
        """A file, or None if there is none."""
        with self._reached():
            if self.is_folder:
                try:
                    return Path(self.address, name).read_bytes()
                except (FileNotFoundError, NotADirectoryError):
                    return None
            system, path = self._system(name)
            return system.cat_file(path) if system.exists(path) else None

    def write(self, files: Mapping[str, bytes]) -> None:
        """Write files, in this order."""
        for name, content in files.items():
            if self.is_folder:
                write_atomically(Path(self.address, name), content)
                continue
            with self._reached():
                system, path = self._system(name)
                system.makedirs(path.rpartition("/")[0], exist_ok=True)
                system.pipe_file(path, content)

    def find(self, folders: str, names: Sequence[str]) -> dict[str, bytes]:
        """Those of the files `names` that are in folders of this pattern (*/cells/one): name → content."""
        with self._reached():
            if self.is_folder:
                places = sorted(Path(self.address).glob(folders))
                matches = [place.relative_to(self.address).as_posix() for place in places]
            else:
                system, pattern = self._system(folders)
                root = self._system("")[1]
                matches = [str(one).removeprefix(root).strip("/") for one in sorted(system.glob(pattern))]
        read = {f"{place}/{name}": self.read(f"{place}/{name}") for place in matches for name in names}
        return {name: content for name, content in read.items() if content is not None}

    def sign(self) -> str:
        """Write a token by which nodes recognise the same storage; returns it."""
        word = secrets.token_hex(8)
        self.write({f".cavia/{word}": word.encode()})
        return word

    def require_signed(self, word: str) -> None:
        """Raise if the token is missing: at this address, the node has another storage, or none."""
        if self.read(f".cavia/{word}") != word.encode():
            raise CaviaError(
                f"it cannot reach {named(self.address)}: what was written there elsewhere is not there; choose storage "
                "that all nodes share, or leave out --storage to have checkpoints sent home"
            )

    def forget(self, word: str) -> None:
        """Delete the token."""
        with self._reached():
            if self.is_folder:
                Path(self.address, ".cavia", word).unlink(missing_ok=True)
            else:
                system, path = self._system(f".cavia/{word}")
                system.rm_file(path)

    def _system(self, name: str) -> tuple[Any, str]:
        """The file system of the address, and the file's path in it."""
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise missing_package(self.address, "fsspec", "ray") from None
        return url_to_fs(f"{self.address.rstrip('/')}/{name}")

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except CaviaError:
            raise
        except Exception as error:  # of any file system
            why = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise CaviaError(f"cannot reach {named(self.address)}: {why}") from error
