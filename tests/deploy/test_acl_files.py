"""acker_redis/ops/acl.py: its commands, the files of deploy/acl, and invalid arguments."""

import hashlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from acker_redis.errors import ConfigError
from acker_redis.ops import acl
from acker_redis.protocol.scripts import NAMES

ROOT = Path(__file__).resolve().parent.parent.parent
FILES = ROOT / "deploy" / "acl"


def render() -> ModuleType:
    spec = importlib.util.spec_from_file_location("render_acl", FILES / "render.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_commands_of_the_scripts_are_those_of_the_contract() -> None:
    rights = (ROOT / "lua" / "README.md").read_text().split("## Rights")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| `([A-Z_ ]+)` \|", rights, re.MULTILINE)
    assert {name: frozenset(words.split()) for name, words in rows} == acl.SCRIPTS
    assert set(acl.SCRIPTS) == set(NAMES)


def test_every_runtime_script_belongs_to_a_role_besides_admin() -> None:
    """Exceptions are the scripts that create, configure and drop a namespace."""
    others = {script for role in acl.roles() if role != "admin" for script in acl.scripts(role)}
    assert set(acl.scripts("admin")) == set(acl.SCRIPTS)
    assert set(acl.SCRIPTS) - others <= {"create", "configure", "drop"}


def test_the_files_are_rendered_from_the_rules() -> None:
    texts = render().files()
    assert {path.name for path in FILES.glob("*.acl")} == set(texts)
    for name, text in texts.items():
        assert (FILES / name).read_text() == text, "run: python deploy/acl/render.py"


def test_no_file_holds_a_password() -> None:
    for path in FILES.glob("*.acl"):
        for line in path.read_text().splitlines():
            assert re.match(r"user \S+ reset (on|off) resetkeys ", line)
            assert not re.search(r" [#>]|nopass", line)


def test_a_password_becomes_its_hash() -> None:
    digest = hashlib.sha256(b"geheim \xc3\xa4").hexdigest()
    line = acl.rule("source", "orders", "shop", "geheim ä")
    assert line.startswith(f"user shop reset on #{digest} resetkeys ~acker:{{orders:*}}* ")
    assert "geheim" not in line
    assert acl.rule("source", "orders", "shop", password_hash=digest.upper()) == line
    assert acl.rule("viewer").startswith("user viewer reset on resetkeys ~acker:{*}* ")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"role": "boss"}, "use one of producer, source, rotator, viewer, admin"),
        ({"namespace": "*"}, "a namespace is"),
        ({"namespace": ""}, "a namespace is"),
        ({"namespace": "a b"}, "a namespace is"),
        ({"user": "a b"}, "a user name"),
        ({"user": ""}, "a user name"),
        ({"user": "a\n+@all"}, "a user name"),
        ({"password": ""}, "the password is empty"),
        ({"password_hash": "12"}, "64 hex digits"),
        ({"password_hash": "g" * 64}, "64 hex digits"),
        ({"password": "secret", "password_hash": "0" * 64}, "not both"),
    ],
)
def test_invalid_acl_arguments_are_rejected(fields: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)) as caught:
        acl.rule(**{"role": "viewer", "namespace": "orders", **fields})
    assert "secret" not in str(caught.value)


def test_roles_have_exactly_these_rights() -> None:
    """A second list of the rights of each role, written by hand, so that a change is noticed."""
    bolt = {"apply", "apply_blocks", "status", "show", "alive"}
    assert {role: set(acl.scripts(role)) for role in acl.roles()} == {
        "producer": bolt,
        "source": bolt | {"take", "report"},
        "rotator": {"rotate", "expire", "expire_blocks", "status"},
        "viewer": {"status", "show", "alive", "list"},
        "admin": set(NAMES),
    }
    beside = {}
    for role in acl.roles():
        inside = frozenset().union(*(acl.SCRIPTS[name] for name in acl.scripts(role)))
        beside[role] = acl.commands(role) - inside - acl.CONNECTING - {"EVAL", "EVALSHA"}
    looking = {
        "XRANGE",
        "XREVRANGE",
        "XINFO|STREAM",
        "SUBSCRIBE",
        "UNSUBSCRIBE",
        "PSUBSCRIBE",
        "PUNSUBSCRIBE",
    }
    assert beside["producer"] == set()
    assert beside["source"] == looking - {"XRANGE"} | {"HSCAN", "EXPIRE", "PERSIST"}
    assert beside["rotator"] == {"SMEMBERS"}
    assert beside["viewer"] == looking | {"SMEMBERS"}
    assert not acl.commands("producer") & {"XDEL", "XRANGE", "XREAD", "XLEN", "HSCAN", "SMEMBERS"}
    strong = {"ACL|SETUSER", "ACL|GETUSER", "CONFIG|SET", "KEYS", "SCAN", "FLUSHALL", "DEBUG"}
    strong |= {"SCRIPT", "SCRIPT|KILL", "FUNCTION|LOAD", "MONITOR", "CLIENT|KILL", "DEL", "RESTORE"}
    strong |= {"APPEND", "FCALL"}
    for role in acl.roles():
        assert not acl.commands(role) & strong
