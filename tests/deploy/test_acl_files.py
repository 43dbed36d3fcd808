"""acker_redis/ops/acl.py beside the contract, the files of deploy/acl, and what it refuses."""

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


def test_every_script_is_run_by_somebody_beside_the_admin() -> None:
    """But those by which a namespace begins, changes and ends."""
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
        ({"role": "boss"}, "a role is one of producer, source, rotator, viewer, admin"),
        ({"namespace": "*"}, "a namespace is"),
        ({"namespace": ""}, "a namespace is"),
        ({"namespace": "a b"}, "a namespace is"),
        ({"user": "a b"}, "a user's name"),
        ({"user": ""}, "a user's name"),
        ({"user": "a\n+@all"}, "a user's name"),
        ({"password": ""}, "the password is empty"),
        ({"password_hash": "12"}, "64 hex digits"),
        ({"password_hash": "g" * 64}, "64 hex digits"),
        ({"password": "secret", "password_hash": "0" * 64}, "not both"),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)) as caught:
        acl.rule(**{"role": "viewer", "namespace": "orders", **fields})
    assert "secret" not in str(caught.value)


def test_who_may_do_what() -> None:
    """What a role may do beside its scripts, once more and by hand: a change is to be noticed."""
    bolt = {"apply", "apply_blocks", "status", "show"}
    assert {role: set(acl.scripts(role)) for role in acl.roles()} == {
        "producer": bolt,
        "source": bolt | {"take"},
        "rotator": {"rotate", "expire", "expire_blocks", "status"},
        "viewer": {"status", "show", "list"},
        "admin": set(NAMES),
    }
    beside = {}
    for role in acl.roles():
        inside = frozenset().union(*(acl.SCRIPTS[name] for name in acl.scripts(role)))
        beside[role] = acl.commands(role) - inside - acl.CONNECTING - {"EVAL", "EVALSHA"}
    looking = {"XRANGE", "XREVRANGE", "SUBSCRIBE", "UNSUBSCRIBE", "PSUBSCRIBE", "PUNSUBSCRIBE"}
    assert beside["producer"] == set()
    assert beside["source"] == looking - {"XRANGE"}
    assert beside["rotator"] == {"SMEMBERS"}
    assert beside["viewer"] == looking | {"SMEMBERS"}
    assert not acl.commands("producer") & {"XDEL", "XRANGE", "XREAD", "XLEN", "HSCAN", "SMEMBERS"}
    strong = {"ACL|SETUSER", "ACL|GETUSER", "CONFIG|SET", "KEYS", "SCAN", "FLUSHALL", "DEBUG"}
    strong |= {"SCRIPT", "SCRIPT|KILL", "FUNCTION|LOAD", "MONITOR", "CLIENT|KILL", "DEL", "RESTORE"}
    strong |= {"APPEND", "FCALL"}
    for role in acl.roles():
        assert not acl.commands(role) & strong
