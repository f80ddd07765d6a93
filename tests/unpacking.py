"""Archives of tests, unpacked with any release of Python 3.11: early ones know no filters."""

import tarfile
from pathlib import Path

__all__ = ["unpack"]


def unpack(archive: tarfile.TarFile, directory: Path) -> None:
    if hasattr(tarfile, "data_filter"):
        archive.extractall(directory, filter="data")
    else:
        archive.extractall(directory)
