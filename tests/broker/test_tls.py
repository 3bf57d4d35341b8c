"""TLS contexts follow their files, and nobody is asked for a password in a terminal."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from ssl import SSLContext, create_default_context

import pytest

from reactive_kafka.broker.aiokafka.credentials import current, tls_context
from reactive_kafka.errors import FatalBrokerError
from tests.broker.security.certificates import make_certificates


@pytest.fixture(scope="module")
def issued(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of certificates."""
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    return folder


def trusted(context: SSLContext | None) -> list[object]:
    """Who the authorities of a context are."""
    assert context is not None
    return [one["subject"] for one in context.get_ca_certs()]


def test_a_context_is_the_same_one_until_its_file_is_another(issued: Path, tmp_path: Path) -> None:
    """Row J7 of the faults."""
    file = tmp_path / "ca.crt"
    shutil.copy(issued / "ours.crt", file)
    first = tls_context({"ssl_cafile": str(file)}, check_hostname=False)
    assert current(first) == (first, "")
    shutil.copy(issued / "foreign.crt", tmp_path / "new")
    (tmp_path / "new").replace(file)
    second, problem = current(first)
    assert second is not first
    assert second is not None
    assert (problem, trusted(second)) == ("", [((("commonName", "foreign"),),)])
    assert not second.check_hostname
    assert current(first) == (second, "")


def test_what_was_there_before_is_used_while_a_file_cannot_be(issued: Path, tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    shutil.copy(issued / "ours.crt", file)
    first = tls_context({"ssl_cafile": str(file)}, check_hostname=True)
    file.unlink()
    context, problem = current(first)
    assert context is first
    assert problem.startswith(
        f"TLS cannot be set up with ssl_cafile = '{file}': [Errno 2] No such file"
    )
    file.write_text("half of it")
    context, problem = current(first)
    assert context is first
    assert f"ssl_cafile = '{file}': [X509" in problem
    shutil.copy(issued / "foreign.crt", file)
    context, problem = current(first)
    assert (problem, trusted(context)) == ("", [((("commonName", "foreign"),),)])


def test_a_context_of_the_users_own_and_none_at_all_stay_what_they_are() -> None:
    own = create_default_context()
    assert current(own) == (own, "")
    assert current(None) == (None, "")


def test_a_key_that_is_encrypted_is_opened_with_its_password_and_asked_for_nowhere(
    issued: Path, tmp_path: Path
) -> None:
    """Row J7 of the faults."""
    key = tmp_path / "encrypted.key"
    command = f"pkcs8 -topk8 -in {issued / 'client.key'} -out {key} -passout pass:open-sesame"
    subprocess.run(["openssl", *command.split()], check=True, capture_output=True)
    settings = {"ssl_certfile": str(issued / "client.crt"), "ssl_keyfile": str(key)}
    tls_context(settings | {"ssl_password": "open-sesame"}, check_hostname=True)
    with pytest.raises(
        FatalBrokerError, match=r"ssl_keyfile = .*encrypted, and there is no ssl_password"
    ):
        tls_context(settings, check_hostname=True)
    with pytest.raises(FatalBrokerError, match=r"ssl_keyfile = .*: ") as refused:
        tls_context(settings | {"ssl_password": "canary"}, check_hostname=True)
    assert "canary" not in str(refused.value)
