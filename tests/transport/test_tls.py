"""TLS errors name the unreadable file or the untrusted certificate."""

import asyncio
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest

from acker_redis.aio import AsyncAcker
from acker_redis.errors import RedisUnavailableError
from acker_redis.sync.client import Acker
from tests.conftest import missing
from tests.transport.listener import Listener

MAKE = (
    *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
    *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Path]]:
    """Two self-signed certificates for localhost, and their keys."""
    if not shutil.which("openssl"):
        missing("openssl")
    folder = tmp_path_factory.mktemp("tls")
    made = []
    for name in ("ours", "theirs"):
        pair = folder / f"{name}.crt", folder / f"{name}.key"
        subprocess.run(
            [*MAKE, "-out", pair[0], "-keyout", pair[1]],
            check=True,
            capture_output=True,
        )
        made.append(pair)
    return made


@pytest.fixture
def port(pairs: list[tuple[Path, Path]]) -> Iterator[int]:
    """A server that completes the handshake with the certificate ``theirs``, then disconnects."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pairs[1])

    def serve(client: socket.socket) -> None:
        with suppress(OSError), context.wrap_socket(client, server_side=True) as secure:
            secure.recv(1)

    listener = Listener(serve)
    yield listener.port
    listener.close()


@pytest.mark.parametrize("name", ["ssl_ca_certs", "ssl_certfile", "ssl_keyfile"])
@pytest.mark.parametrize("form", ["rediss", "rediss+cluster", "rediss+sentinel"])
def test_missing_file_is_named(
    port: int, pairs: list[tuple[Path, Path]], form: str, name: str
) -> None:
    service = "/svc" if "sentinel" in form else ""
    url = f"{form}://localhost:{port}{service}?{name}=/no/such/file.pem"
    if name == "ssl_keyfile":
        url += f"&ssl_certfile={pairs[0][0]}"
    with pytest.raises(RedisUnavailableError, match=rf"file\.pem \({name}\): No such file"):
        Acker.from_url(url, "n", retry_for=0).status()


@pytest.mark.parametrize("form", ["rediss", "rediss+cluster"])
def test_asyncio_names_the_file_too(port: int, form: str) -> None:
    async def run() -> None:
        url = f"{form}://localhost:{port}?ssl_ca_certs=/no/such/file.pem"
        async with AsyncAcker.from_url(url, "n", retry_for=0) as acker:
            with pytest.raises(RedisUnavailableError, match=r"file\.pem \(ssl_ca_certs\): No such"):
                await acker.status()

    asyncio.run(run())


def test_file_without_a_certificate_is_named(port: int, tmp_path: Path) -> None:
    path = tmp_path / "empty.pem"
    path.write_text("no certificate")
    url = f"rediss://localhost:{port}?ssl_ca_certs={path}"
    with pytest.raises(RedisUnavailableError, match=r"empty\.pem .* contains no PEM certificate"):
        Acker.from_url(url, "n", retry_for=0).status()


@pytest.mark.parametrize("form", ["rediss", "rediss+cluster"])
def test_untrusted_certificate_is_named(
    port: int, pairs: list[tuple[Path, Path]], form: str
) -> None:
    ours = pairs[0][0]
    url = f"{form}://localhost:{port}?ssl_ca_certs={ours}"
    with pytest.raises(RedisUnavailableError) as raised:
        Acker.from_url(url, "n", retry_for=0).status()
    assert "not trusted: self" in str(raised.value)
    assert str(ours) in str(raised.value)
    assert "is it running" not in str(raised.value)


def test_asyncio_names_the_untrusted_certificate_too(
    port: int, pairs: list[tuple[Path, Path]]
) -> None:
    async def run() -> None:
        url = f"rediss://localhost:{port}?ssl_ca_certs={pairs[0][0]}"
        async with AsyncAcker.from_url(url, "n", retry_for=0) as acker:
            with pytest.raises(RedisUnavailableError, match=r"not trusted: self.*ours\.crt"):
                await acker.status()

    asyncio.run(run())


def test_without_a_file_the_option_is_named(port: int, pairs: list[tuple[Path, Path]]) -> None:
    with pytest.raises(RedisUnavailableError, match="set your own by ssl_ca_certs=PATH"):
        Acker.from_url(f"rediss://localhost:{port}", "n", retry_for=0).status()


def test_certificate_authority_may_be_in_the_url(port: int, pairs: list[tuple[Path, Path]]) -> None:
    """Spark needs this, so that no executor needs a file."""
    data = quote(pairs[1][0].read_text(), safe="")
    with pytest.raises(RedisUnavailableError) as raised:
        Acker.from_url(f"rediss://localhost:{port}?ssl_ca_data={data}", "n", retry_for=0).status()
    assert "trusted" not in str(raised.value), "the server disconnects after the handshake"
    assert "TLS" not in str(raised.value)
