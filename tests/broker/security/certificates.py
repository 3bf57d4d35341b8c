"""Certificates of every kind, good and bad, made by openssl for one test run."""

from __future__ import annotations

import subprocess
from pathlib import Path

KEY = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
HERE = "IP:127.0.0.1,DNS:localhost"


def make_certificates(folder: Path) -> None:
    """``NAME.crt``, ``NAME.key``, and both in ``NAME.pem``, of the servers and clients below;
    ``ours.crt`` and ``foreign.crt`` are the authorities.
    """
    for authority in ("ours", "foreign"):
        _openssl(
            folder,
            f"req -x509 {KEY} -days 2 -subj /CN={authority} -keyout {authority}.key -out {authority}.crt",
        )
    _sign(folder, "server", subject="server")
    _sign(folder, "server-expired", subject="server", days=-1)
    _sign(folder, "server-elsewhere", subject="server", names="DNS:elsewhere.example")
    _sign(folder, "server-foreign", subject="server", authority="foreign")
    _sign(folder, "client", subject="carol")
    _sign(folder, "client-expired", subject="carol", days=-1)
    _sign(folder, "client-foreign", subject="carol", authority="foreign")


def _sign(
    folder: Path,
    name: str,
    *,
    subject: str,
    authority: str = "ours",
    days: int = 2,
    names: str = HERE,
) -> None:
    _openssl(folder, f"req {KEY} -subj /CN={subject} -keyout {name}.key -out {name}.csr")
    (folder / "extensions").write_text(f"subjectAltName={names}\n")
    by = f"-CA {authority}.crt -CAkey {authority}.key -CAcreateserial"
    _openssl(
        folder, f"x509 -req -in {name}.csr {by} -days {days} -extfile extensions -out {name}.crt"
    )
    key = folder / f"{name}.key"
    key.chmod(0o600)
    (folder / f"{name}.pem").write_text(key.read_text() + (folder / f"{name}.crt").read_text())


def _openssl(folder: Path, command: str) -> None:
    subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)
