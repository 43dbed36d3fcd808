"""docs/reference/rest.md: its commands succeed, and its token file is valid."""

import json
import re
import shlex
from pathlib import Path

import httpx

from acker_api.auth.tokens import Tokens
from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import NamespaceNotFoundError
from acker_redis.protocol.config import AckerConfig
from acker_redis.sync.client import Acker
from tests.api.service import api, asked
from tests.conftest import MakeAcker

PAGE = (
    Path(__file__).resolve().parent.parent.parent / "docs" / "reference" / "rest.md"
).read_text()


def test_commands_of_the_rest_page_succeed(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    make_any_acker()  # so that the server is empty
    script = "\n".join(re.findall(r"```sh[^\n]*\n(.*?)```", PAGE, re.DOTALL)).replace("\\\n", " ")
    lines = [line for line in script.splitlines() if line.startswith("curl ")]
    assert len(lines) == 21

    async def talk(client: httpx.AsyncClient) -> None:
        for line in lines:
            with Acker.from_url(any_server.url, "orders", timeout=60) as acker:
                _provide(acker)
                answer = await _curl(client, line)
                assert not answer.is_error, f"{line}: {answer.text}"

    asked(any_server.url, talk)


def _provide(acker: Acker) -> None:
    """Create the namespace, the tree and the block that the page uses."""
    try:
        acker.status()
    except NamespaceNotFoundError:
        acker.create(AckerConfig(tick_ms=60_000, shards=4))
    if acker.show(4711) is None:
        batch = Batch("shop")
        batch.track(4711, "order-17", [40])
        acker.apply(batch)
    if acker.show_block(815) is None:
        acker.track_block("shop", "page 1", [40, 41], 815)


async def _curl(client: httpx.AsyncClient, line: str) -> httpx.Response:
    line = line.replace("$api", "/api/v1").replace("$as", "X: y").replace("$json", _JSON)
    words = shlex.split(line, comments=True)[1:]
    method, body, url = "GET", None, ""
    headers = {}
    while words:
        word = words.pop(0)
        if word == "-X":
            method = words.pop(0)
        elif word == "-d":
            body = json.dumps(json.loads(words.pop(0)))
            method = "POST" if method == "GET" else method
        elif word == "-H":
            name, _, value = words.pop(0).partition(": ")
            headers[name] = value
        else:
            assert not url
            url = word
    return await client.request(method, url, content=body, headers=headers)


_JSON = "Content-Type: application/json"


def test_token_file_of_the_rest_page_is_valid() -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    tokens = iter(("a" * 20, "b" * 20))
    text = re.sub(r'token = "\.\.\."', lambda _: f'token = "{next(tokens)}"', text)
    found = {grant.who.name: grant.who for grant in Tokens.of(api(tokens=text))}
    assert found["alice"].namespaces == ("orders", "shop-*")
    assert found["wallboard"].everywhere
    (line,) = re.findall(r"`(tokens = \[.*?\])`", PAGE)
    Tokens.of(api(tokens=line.replace('"..."', f'"{"c" * 20}"')))
