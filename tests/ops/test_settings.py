"""Settings from the environment; no output contains a password."""

import inspect
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from pydantic import SecretStr

from acker_redis.errors import ConfigError
from acker_redis.ops.settings import Settings, read_secret
from acker_redis.protocol.config import AckerConfig
from acker_redis.sync.client import Acker

OPERATIONS = Path(__file__).resolve().parents[2] / "docs" / "reference" / "settings.md"


def test_defaults() -> None:
    settings = Settings.read()
    assert settings.shown_url == "redis://127.0.0.1:6379/0"
    assert (settings.timeout, settings.retry_for) == (5.0, 10.0)


def test_arguments_override_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACKER_REDIS_URL", "redis://elsewhere:1/0")
    monkeypatch.setenv("ACKER_REDIS_TIMEOUT", "2")
    assert Settings.read(url="redis://here:2/0").shown_url == "redis://here:2/0"
    assert Settings.read(url=None).shown_url == "redis://elsewhere:1/0"
    assert Settings.read(timeout=None).timeout == 2


def test_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker Compose sets variables without a value to an empty text."""
    monkeypatch.setenv("ACKER_REDIS_PASSWORD", "")
    monkeypatch.setenv("ACKER_REDIS_URL", "")
    settings = Settings.read()
    assert settings.password is None
    assert settings.shown_url == "redis://127.0.0.1:6379/0"


@pytest.mark.parametrize(
    ("url", "shown", "complete"),
    [
        ("redis://h", "redis://al:***@h:6379/0", "redis://al:p%2Fw%40@h"),
        ("redis://bob@h/2", "redis://bob:***@h:6379/2", "redis://bob:p%2Fw%40@h/2"),
        ("redis://:own@h", "redis://al:***@h:6379/0", "redis://al:own@h"),
        ("redis://bob:own@h", "redis://bob:***@h:6379/0", "redis://bob:own@h"),
        ("redis://h?username=bob&password=own", "redis://bob:***@h:6379/0", None),
        ("unix:///run/r.sock?db=3", "unix://al:***@/run/r.sock", None),
        ("rediss+cluster://[::1]:7,b", "rediss+cluster://al:***@[::1]:7,b:6379", None),
        ("redis+sentinel://a,b:1/svc", "redis+sentinel://al:***@a:26379,b:1/svc/0", None),
    ],
)
def test_user_and_password_complete_the_url(url: str, shown: str, complete: str | None) -> None:
    settings = Settings(url=url, username="al", password="p/w@")  # type: ignore[arg-type]
    assert settings.shown_url == shown
    if complete:
        assert settings.complete_url == complete
    again = Settings(url=settings.complete_url)  # type: ignore[arg-type]
    assert again._target() == settings._target()
    for secret in ("p/w@", "p%2Fw%40", "own"):
        assert secret not in f"{settings!r} {settings} {settings.shown_url}"


def test_password_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(" hush \n")
    assert Settings(password_file=file)._target().password == " hush "
    assert Settings(password_file=file).shown_url == "redis://:***@127.0.0.1:6379/0"
    assert read_secret(file, "X") == " hush "


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "No such file"), (b"\n", "is empty"), (b"\xff", "it is not text")],
)
def test_bad_password_file_is_named_and_not_quoted(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=f"^ACKER_REDIS_PASSWORD_FILE: .*{words}"):
        Settings(password_file=file).connect()


@pytest.mark.parametrize(
    ("name", "value"),
    [("TIMEOUT", "hush"), ("TIMEOUT", "0"), ("RETRY_FOR", "-1"), ("LOG_LEVEL", "hush")],
)
def test_invalid_variable_is_named_and_not_quoted(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"ACKER_REDIS_{name}", value)
    with pytest.raises(ConfigError, match=f"^ACKER_REDIS_{name}: ") as caught:
        Settings.read()
    assert "hush" not in str(caught.value)


def test_invalid_url_is_not_shown() -> None:
    settings = Settings(url="hush:hush@hush")  # type: ignore[arg-type]
    assert settings.shown_url == "(not shown: not a URL)"
    with pytest.raises(ConfigError) as caught:
        settings.connect()
    assert "hush" not in str(caught.value)


def rows() -> list[str]:
    """Return the rows of the table in docs/reference/settings.md, from the fields."""
    from acker_api.settings import ApiSettings

    found = []
    for prefix, settings in (("", Settings), ("API_", ApiSettings)):
        for name, field in settings.model_fields.items():
            value = field.default
            shown = value.get_secret_value() if isinstance(value, SecretStr) else value
            if isinstance(shown, bool):
                shown = str(shown).lower()
            default = "" if shown in (None, "") else f"`{shown}`"
            words = (field.description or "").replace("|", "\\|")
            found.append(f"| `ACKER_REDIS_{prefix}{name.upper()}` | {default} | {words} |")
    return found


def test_docs_table_lists_every_variable_and_no_other() -> None:
    text = OPERATIONS.read_text()
    assert [line for line in text.splitlines() if line.startswith("| `ACKER_REDIS_")] == rows()


def test_docs_table_lists_every_setting_of_a_namespace() -> None:
    table = re.findall(r"^\| (`[a-z_`, ]+`) \| (yes|no)", OPERATIONS.read_text(), re.MULTILINE)
    names = {word: set[str]() for word in ("yes", "no")}
    for cell, word in table:
        names[word] |= set(re.findall(r"`([a-z_]+)`", cell))
    changeable = set(inspect.signature(Acker.configure).parameters) - {"self"} | {"shards"}
    assert names["yes"] == changeable
    assert names["no"] == {each.name for each in fields(AckerConfig)} - changeable


def test_library_does_not_read_the_environment() -> None:
    """The caller of Acker.from_url passes the URL."""
    code = "import sys, acker_redis; acker_redis.Acker; print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
