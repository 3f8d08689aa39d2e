"""Where a lake is: a folder, or a prefix of an S3-compatible store. The same calls for both.

A *name* is the path of a file below the lake's root, with slashes. A file is there whole under its
name, or it is not there. On a disk it is written under another name, synced and renamed. In an
object store it appears when its upload ends.

The store is found as everybody finds it: ``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``,
``AWS_SESSION_TOKEN`` (or what else the SDK knows), ``AWS_REGION``, and for a store that is not
Amazon's ``AWS_ENDPOINT_URL_S3`` or ``AWS_ENDPOINT_URL``. A URI may name the last two itself:
``s3://bucket/lake?region=eu-1&endpoint_override=http://127.0.0.1:9000``.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from failback.analytics.errors import ReportInputError, StoreUnusable
from failback.analytics.lake.parquet_guard import footer_of
from failback.common.files import has_rows, open_file, sync_folder
from failback.common.replacing import place
from failback.common.text import why

_S3: Final = frozenset({"s3", "s3a"})
_DENIED: Final = "ACCESS_DENIED"
_AWAY: Final = ("curlCode", "NETWORK_CONNECTION", "ENDPOINT_RESOLUTION_FAILURE")
"""What the SDK says when nobody answered."""


@contextlib.contextmanager
def readable(where: str | None = None) -> Iterator[None]:
    """Raises ``ReportInputError`` where a Parquet file cannot be read."""
    try:
        yield
    except StoreUnusable:
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ReportInputError(why(error), where) from error


@dataclass(frozen=True, slots=True)
class S3Place:
    """How to reach an S3-compatible store; ``None`` leaves it to the SDK."""

    endpoint: str | None
    """With its scheme: ``http://127.0.0.1:9000``."""
    region: str | None

    @classmethod
    def of(cls, query: str, environment: Mapping[str, str]) -> S3Place:
        """From a URI's query, else the environment."""
        named = {key: values[-1] for key, values in parse_qs(query).items()}
        unknown = sorted(set(named) - {"endpoint_override", "region"})
        if unknown:
            raise ReportInputError(
                f"{unknown[0]} in the URI of a lake: only region and endpoint_override may be there"
            )
        endpoint = (
            named.get("endpoint_override")
            or environment.get("AWS_ENDPOINT_URL_S3")
            or environment.get("AWS_ENDPOINT_URL")
        )
        region = (
            named.get("region")
            or environment.get("AWS_REGION")
            or environment.get("AWS_DEFAULT_REGION")
        )
        if endpoint and "://" not in endpoint:
            endpoint = f"https://{endpoint}"
        return cls(endpoint, region or ("us-east-1" if endpoint else None))

    def file_system(self) -> fs.FileSystem:
        options: dict[str, Any] = {"allow_delayed_open": True}  # a small file is one PUT
        if self.region:
            options["region"] = self.region
        if self.endpoint:
            split = urlsplit(self.endpoint)
            options |= {"endpoint_override": split.netloc, "scheme": split.scheme}
        return fs.S3FileSystem(**options)

    def spark_settings(self) -> dict[str, str]:
        """What Hadoop's S3A needs beside the credentials, which Spark takes from the driver."""
        found = {"spark.hadoop.fs.s3a.path.style.access": "true"} if self.endpoint else {}
        if self.endpoint:
            found["spark.hadoop.fs.s3a.endpoint"] = self.endpoint
            secured = str(self.endpoint.startswith("https:")).lower()
            found["spark.hadoop.fs.s3a.connection.ssl.enabled"] = secured
        if self.region:
            found["spark.hadoop.fs.s3a.endpoint.region"] = self.region
        return found


@dataclass(frozen=True, slots=True)
class Found:
    """A file below the root."""

    name: str
    size: int


class LakeStore:
    """One lake's files. Every method may block; all may be called from any thread.

    An object store that cannot be used is a ``StoreUnusable`` that names what was asked for; a
    folder raises the ``OSError`` of the system.
    """

    def __init__(
        self,
        file_system: fs.FileSystem,
        base: str,
        *,
        folder: Path | None = None,
        s3: S3Place | None = None,
        scratch: Path | None = None,
    ) -> None:
        self.fs = file_system
        self.s3 = s3
        self.folder = folder
        """The root on this machine; ``None`` for an object store."""
        self._base = base
        self._scratch = scratch

    def __str__(self) -> str:
        return str(self.folder) if self.folder is not None else f"s3://{self._base}"

    def path(self, name: str) -> str:
        """The path of a file for ``fs``."""
        return f"{self._base}/{name}" if name else self._base

    def spark_uri(self, name: str) -> str:
        """The same for Spark."""
        if self.folder is not None:
            return str(self.folder.absolute() / name) if name else str(self.folder.absolute())
        return f"s3a://{self.path(name)}"

    def spark_settings(self) -> dict[str, str]:
        return self.s3.spark_settings() if self.s3 is not None else {}

    @contextlib.contextmanager
    def _asked_for(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            if self.folder is not None:
                raise
            bucket = self._base.partition("/")[0]
            raise StoreUnusable(_in_words(str(error), self.s3, bucket), self._uri(name)) from error

    def _uri(self, name: str) -> str:
        return f"{self}/{name}" if name else str(self)

    def check(self) -> None:
        """Ask an object store whether it can be used at all.

        Raises:
            StoreUnusable: It cannot be reached, or has no such bucket.
        """
        if self.folder is not None:
            return
        bucket = self._base.partition("/")[0]
        try:
            with self._asked_for(""):
                found = self.fs.get_file_info(bucket)
        except StoreUnusable as error:
            if _DENIED in str(error):
                return  # whom a policy lets into a prefix only may not ask for the bucket
            raise
        if found.type == fs.FileType.NotFound:
            raise StoreUnusable(f"there is no bucket {bucket}", self._uri(""))

    def files(self, prefix: str, suffix: str = ".parquet") -> list[Found]:
        """The files right in a folder, by name. Hidden ones (of rows: ``_`` too) are left out.

        A pipe, a folder or a dangling link with a file's suffix is one that cannot be opened.
        """
        found = [
            Found(f"{prefix}/{info.base_name}", info.size or 0)
            for info in self._below(prefix)
            if (suffix or info.type == fs.FileType.File)
            and info.base_name.endswith(suffix)
            and not info.base_name.startswith(".")
            and (suffix != ".parquet" or has_rows(info.base_name))
        ]
        return sorted(found, key=lambda file: file.name)

    def irregular_files(self, prefix: str) -> list[str]:
        """What has the suffix of rows anywhere below a folder, and is a pipe, a folder or a
        dangling link; never anything in an object store."""
        found: list[str] = []
        for at, folders, files in os.walk(self.folder / prefix) if self.folder is not None else ():
            names = [*folders, *(each for each in files if not os.path.isfile(f"{at}/{each}"))]
            rows = (name for name in names if name.endswith(".parquet") and has_rows(name))
            found += [f"{at}/{name}" for name in rows]
        return sorted(os.path.relpath(each, self.folder) for each in found)

    def drop_unfinished(self, prefix: str, start: str) -> None:
        """Delete what a killed writer left in a folder under hidden names of this start."""
        for info in self._below(prefix) if self.folder is not None else ():
            if info.base_name.startswith(f".{start}") and info.base_name.endswith(".tmp"):
                self.delete(f"{prefix}/{info.base_name}")

    def folders(self, prefix: str = "") -> list[str]:
        """Names of the folders right in a folder."""
        return sorted(
            info.base_name for info in self._below(prefix) if info.type == fs.FileType.Directory
        )

    def _below(self, prefix: str) -> list[fs.FileInfo]:
        if self.folder is not None:  # a selector leaves dangling links out
            try:
                names = os.listdir(self.folder / prefix)
            except (FileNotFoundError, NotADirectoryError):
                return []
            wanted: Any = [self.path(f"{prefix}/{name}") for name in names]
        else:
            wanted = fs.FileSelector(self.path(prefix), allow_not_found=True)
        with self._asked_for(prefix):
            found: list[fs.FileInfo] = self.fs.get_file_info(wanted)
        return found

    def size(self, name: str) -> int | None:
        """Bytes of a file, ``None`` if there is none."""
        with self._asked_for(name):
            info = self.fs.get_file_info(self.path(name))
        return info.size if info.type == fs.FileType.File else None

    def open(self, name: str) -> pa.NativeFile:
        """For reading anywhere in it. Raises ``FileNotFoundError``."""
        self._check_file(name)
        with self._asked_for(name):
            return self.fs.open_input_file(self.path(name))

    def footer(self, name: str) -> pq.FileMetaData:
        """What a Parquet file says of itself; in a folder its pages are looked at.

        Those of an object store were looked at by the collector, which alone writes there.

        Raises:
            FileNotFoundError: There is none.
            ValueError: As :func:`parquet_guard.footer_of`.
        """
        if self.folder is not None:
            with open_file(self.folder / name) as source:
                return footer_of(source)
        with self.open(name) as source:
            return pq.read_metadata(source)

    def read(self, name: str) -> bytes:
        """A whole small file. Raises ``FileNotFoundError``."""
        self._check_file(name)
        with self._asked_for(name), self.fs.open_input_file(self.path(name)) as file:
            content: bytes = file.read()
        return content

    def _check_file(self, name: str) -> None:
        """Refuse what is no regular file: a pipe would wait for its writer."""
        if self.folder is not None:
            open_file(self.folder / name).close()

    def write(self, name: str, content: bytes | memoryview | pa.Buffer) -> None:
        """Put a file there, instead of an older one; durable when this returns."""
        if self.folder is None:
            with self._asked_for(name), self.fs.open_output_stream(self.path(name)) as sink:
                sink.write(content)
            return
        path = self.folder / name
        if not path.parent.exists():
            self._make_folder(path.parent)
        beside = self._scratch if self._scratch is not None else path.parent
        hidden = beside / f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
        place(content, hidden, path)

    def _make_folder(self, folder: Path) -> None:
        assert self.folder is not None
        folder.mkdir(parents=True, exist_ok=True)
        while folder != self.folder and folder.is_relative_to(self.folder):
            folder = folder.parent
            sync_folder(folder)

    def move(self, name: str, to: str) -> None:
        """Give a file another name, instead of an older file; it may be gone already.

        On a disk it is one step, in an object store a copy and a deletion.
        """
        if self.folder is not None:
            target = self.folder / to
            if not target.parent.exists():
                self._make_folder(target.parent)
            with contextlib.suppress(FileNotFoundError):
                (self.folder / name).replace(target)
            sync_folder(target.parent)
            return
        with contextlib.suppress(FileNotFoundError), self._asked_for(name):
            self.fs.copy_file(self.path(name), self.path(to))
            self.fs.delete_file(self.path(name))

    def delete(self, name: str) -> None:
        """Take a file away; it may be gone already."""
        with contextlib.suppress(FileNotFoundError), self._asked_for(name):
            self.fs.delete_file(self.path(name))

    def delete_folder(self, prefix: str) -> None:
        """Take a folder away with all that is in it; it may be gone already."""
        with contextlib.suppress(FileNotFoundError), self._asked_for(prefix):
            self.fs.delete_dir(self.path(prefix))


def _in_words(text: str, place: S3Place | None, bucket: str) -> str:
    """What the SDK says of a failed request, for who typed the address of the lake."""
    if not any(sign in text for sign in _AWAY):
        return text.partition("\n")[0]
    if place is not None and place.endpoint:
        return f"cannot reach {place.endpoint}"
    region = (place.region if place is not None else None) or "us-east-1"
    host = f"{bucket}.s3.{region}.amazonaws.com"
    return f"cannot reach {host}; AWS_ENDPOINT_URL_S3, for another store, is not set"


def open_store(root: Path | str, *, scratch: Path | None = None) -> LakeStore:
    """The lake at a folder or a URI; nothing is asked of an object store yet.

    Args:
        root: A folder, ``file:///...`` or ``s3://bucket/prefix``.
        scratch: A folder on the lake's own file system for what is being written.

    Raises:
        ReportInputError: The URI cannot be read.
    """
    if isinstance(root, Path) or "://" not in root:
        return _local(Path(root), scratch)
    split = urlsplit(root)
    if split.scheme == "file":
        return _local(Path(split.path), scratch)
    if split.scheme not in _S3:
        raise ReportInputError(
            f"{root}: a lake is a folder or s3://bucket/prefix, not {split.scheme}"
        )
    base = f"{split.netloc}{PurePosixPath('/', split.path)}".rstrip("/")
    if not split.netloc:
        raise ReportInputError(f"{root}: no bucket is named")
    s3 = S3Place.of(split.query, os.environ)
    try:
        return LakeStore(s3.file_system(), base, s3=s3)
    except (OSError, pa.ArrowException) as error:
        raise StoreUnusable(str(error).partition("\n")[0], root) from error


def _local(folder: Path, scratch: Path | None) -> LakeStore:
    return LakeStore(fs.LocalFileSystem(), str(folder.absolute()), folder=folder, scratch=scratch)


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Where another process finds a store, and what it needs to be let in."""

    root: str
    environment: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, store: LakeStore) -> Self:
        """A folder, or an object store with the credentials of this process."""
        if store.folder is not None:
            return cls(str(store.folder.absolute()), ())
        found = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        if store.s3 is not None and store.s3.endpoint:
            found["AWS_ENDPOINT_URL_S3"] = store.s3.endpoint
        if store.s3 is not None and store.s3.region:
            found["AWS_REGION"] = store.s3.region
        return cls(str(store), tuple(sorted(found.items())))

    def open(self) -> LakeStore:
        """The store; opened once in a process."""
        return _opened(self)


@lru_cache(maxsize=4)
def _opened(address: StoreAddress) -> LakeStore:
    os.environ.update(dict(address.environment))
    return open_store(address.root)
