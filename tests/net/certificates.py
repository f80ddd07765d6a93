"""Keys and certificates for tests: an authority, and whom it has signed."""

from __future__ import annotations

import subprocess
from pathlib import Path

KEY_ALGORITHM = ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")


class Authority:
    """Made by the `openssl` program, in a directory of its own."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._name = name
        self._key = directory / f"{name}.key"
        self.certificate = directory / f"{name}.crt"
        _openssl("genpkey", *KEY_ALGORITHM, "-out", self._key)
        subject = ("-subj", f"/CN={name}", "-days", "3650")
        _openssl("req", "-x509", "-key", self._key, *subject, "-out", self.certificate)

    def signed(self, name: str) -> Path:
        """A file with a key and a certificate for it, good for this machine."""
        key, request, certificate = (self._directory / f"{name}.{end}" for end in ("key", "csr", "crt"))
        extensions = self._directory / f"{name}.ext"
        extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        _openssl("genpkey", *KEY_ALGORITHM, "-out", key)
        _openssl("req", "-new", "-key", key, "-subj", f"/CN={name}", "-out", request)
        authority = ("-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial", "-days", "3650")
        _openssl("x509", "-req", "-in", request, *authority, "-extfile", extensions, "-out", certificate)
        both = self._directory / f"{name}.pem"
        both.write_text(key.read_text() + certificate.read_text())
        return both


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
