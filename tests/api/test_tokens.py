"""Tokens by role and namespace: their sources, and their rights."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from acker_api import ApiSettings, check_bind, create_app
from acker_api.auth.tokens import Role, Tokens, Who
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import ConfigError
from acker_redis.ops.settings import Settings
from tests.api.operations import OPERATIONS, Operation
from tests.api.service import TOKEN, api, asked, bearer, is_problem
from tests.api.test_namespaces import V1
from tests.conftest import MakeAcker
from tests.support import track

NAMES = ("metrics", "viewer", "operator", "admin", "some", "begins")


def token(name: str) -> str:
    return f"{name}-token-{'x' * 10}"


def tokens(namespace: str) -> str:
    """Return a token file: one token per role, and two for some namespaces only."""
    entries = [
        f'[[tokens]]\nname = "{name}"\nrole = "{name}"\ntoken = "{token(name)}"\n'
        for name in NAMES[:4]
    ]
    some = f'namespaces = ["other", "{namespace}"]'
    begins = f'namespaces = ["{namespace[:-2]}*"]'
    for name, role, which in (("some", "admin", some), ("begins", "operator", begins)):
        entries.append(
            f'[[tokens]]\nname = "{name}"\nrole = "{role}"\ntoken = "{token(name)}"\n{which}\n'
        )
    return "\n".join(entries)


ROLES = {
    "metrics": None,
    "viewer": Role.VIEWER,
    "operator": Role.OPERATOR,
    "admin": Role.ADMIN,
    "some": Role.ADMIN,
    "begins": Role.OPERATOR,
}
RANKS = (None, Role.VIEWER, Role.OPERATOR, Role.ADMIN)


def may(name: str, operation: Operation) -> bool:
    return RANKS.index(ROLES[name]) >= RANKS.index(operation.role)


def test_each_role_may_use_its_routes_only(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    """A token for some namespaces has no rights in others."""
    acker, foreign = make_any_acker(), make_any_acker()
    track(acker, 7, 40)

    async def talk(client: httpx.AsyncClient) -> None:
        for operation in OPERATIONS:
            if operation.template.endswith("/session"):
                continue
            is_problem(await operation.ask(client, acker.namespace), 401, "unauthorized")
            for name in NAMES:
                answer = await operation.ask(client, acker.namespace, bearer(token(name)))
                case = f"{name} {operation.key} {answer.status_code}"
                assert (answer.status_code != 403) == may(name, operation), case
                assert answer.status_code != 401, case
                if "{namespace}" not in operation.template and operation.method == "GET":
                    continue
                elsewhere = await operation.ask(client, foreign.namespace, bearer(token(name)))
                sees = name not in ("some", "begins") and may(name, operation)
                assert (elsewhere.status_code != 403) == sees, case
            if operation.action == "drop_namespace":
                make_again(acker), make_again(foreign)

    asked(any_server.url, talk, tokens=tokens(acker.namespace))


def make_again(acker: Any) -> None:
    from acker_redis.protocol.config import AckerConfig

    acker.create(AckerConfig(tick_ms=3_600_000))


def test_list_has_only_namespaces_of_the_token(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    mine, foreign = make_any_acker().namespace, make_any_acker().namespace

    async def talk(client: httpx.AsyncClient) -> None:
        for name, seen in (("viewer", {mine, foreign}), ("some", {mine}), ("begins", {mine})):
            body = (await client.get(V1, headers=bearer(token(name)))).json()
            assert {each["name"] for each in body["namespaces"]} == seen
            assert body["total"] == len(seen)
        for name, status in (("metrics", 200), ("viewer", 200), ("some", 403)):
            answer = await client.get("/metrics", headers=bearer(token(name)))
            assert answer.status_code == status, "/metrics names all namespaces"
        late = bearer(token("some"))
        assert mine not in (await client.get("/readyz", headers=late)).text

    asked(any_server.url, talk, tokens=tokens(mine))


def test_namespaces_and_roles_of_a_token() -> None:
    who = Who("w", Role.OPERATOR, ("a", "b-*"))
    assert [who.sees(name) for name in ("a", "ab", "b-", "b-1", "b", "*")] == [
        *(True, False, True, True, False, False)
    ]
    assert not who.may(Role.METRICS)
    assert Who("w", Role.METRICS).may(Role.METRICS)
    assert not Who("w", Role.METRICS).may(Role.VIEWER)
    assert Who("w", Role.VIEWER).may(Role.METRICS)


def test_tokens_are_read_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(tokens("orders"))
    assert [grant.who.name for grant in Tokens.of(ApiSettings(tokens_file=file))] == [*NAMES]
    monkeypatch.setenv("ACKER_REDIS_API_TOKENS", tokens("orders"))
    grant = Tokens.of(ApiSettings.read()).find(token("begins"))
    assert grant
    assert grant.who == Who("begins", Role.OPERATOR, ("orde*",))
    assert Tokens.of(ApiSettings.read()).find("begins") is None
    with pytest.raises(ConfigError, match="both set"):
        Tokens.of(ApiSettings.read(tokens_file=file))
    check_bind(ApiSettings.read(host="0.0.0.0"))


@pytest.mark.parametrize("name", ["tokens", "token", "metrics_token"])
@pytest.mark.parametrize("mode", [0o600, 0o400, 0o644, 0o640, 0o604, 0o620])
def test_file_that_others_may_read_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, mode: int
) -> None:
    file = tmp_path / "secret"
    file.write_text(tokens("orders") if name == "tokens" else TOKEN)
    file.chmod(mode)
    create_app(Settings(), ApiSettings.read(**{f"{name}_file": file}))
    told = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert len(told) == bool(mode & 0o077)
    assert all(f"{name.upper()}_FILE" in line and f"{mode:04o}" in line for line in told)
    assert all("chmod 600" in line and TOKEN not in line for line in told)


def test_metrics_role_alone_requires_no_tokens_elsewhere() -> None:
    text = f'tokens = [{{name="m", role="metrics", token="{TOKEN}"}}]'
    assert Tokens.of(api(tokens=text)).open
    with pytest.raises(ConfigError, match="no token is set"):
        check_bind(api(tokens=text, host="0.0.0.0"))


SECRET = "hunter2-hunter2-hunter2"
GOOD = f'name="a", role="viewer", token="{SECRET}"'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tokens = [", "is not TOML"),
        (f"{SECRET}", "is not TOML"),
        ("", "tokens: Field required"),
        (f'"{SECRET}" = 1', r"\?: Extra inputs"),
        ("tokens = []", "tokens: List should have at least 1"),
        ("tokens = 1", "tokens: "),
        (f"tokens = [{{{GOOD}, colour=1}}]", r"tokens.0.\?: Extra"),
        (f'tokens = [{{name="a b", role="viewer", token="{SECRET}"}}]', "tokens.0.name"),
        (f'tokens = [{{name="a", role="boss", token="{SECRET}"}}]', "tokens.0.role"),
        (f'tokens = [{{role="viewer", token="{SECRET}"}}]', "tokens.0.name: Field required"),
        ('tokens = [{name="a", role="viewer"}]', "tokens.0.token: Field required"),
        ('tokens = [{name="a", role="viewer", token="hunter2"}]', "the token of a must have 16"),
        (f"tokens = [{{{GOOD}, namespaces=[]}}]", "tokens.0.namespaces"),
        (f'tokens = [{{{GOOD}, namespaces=["a*b"]}}]', "a namespace must be a name, or a prefix"),
        (f'tokens = [{{{GOOD}, namespaces=["{SECRET} "]}}]', "a namespace must be a name"),
        (
            f'tokens = [{{name="a", role="metrics", token="{SECRET}", namespaces=["b"]}}]',
            "names all namespaces",
        ),
        (f"tokens = [{{{GOOD}}}, {{{GOOD}}}]", "two tokens have the same name"),
        (
            f'tokens = [{{{GOOD}}}, {{name="b", role="viewer", token="{SECRET}"}}]',
            "two tokens have the same token",
        ),
    ],
)
def test_invalid_tokens_are_reported_without_secrets(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        create_app(Settings(), api(tokens=text))
    assert "hunter2" not in str(raised.value)


def test_token_name_admin_is_reserved() -> None:
    text = f'tokens = [{{name="admin", role="viewer", token="{SECRET}"}}]'
    with pytest.raises(ConfigError, match="two tokens have the same name"):
        Tokens.of(api(tokens=text, token=TOKEN))
