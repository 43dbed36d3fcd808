"""Options of the data source of verdicts."""

import pytest

from acker_redis.errors import (
    ConfigError,
)
from acker_redis.spark.fold.target import URL_VARIABLE, Target
from acker_redis.spark.streams.outcome_options import OutcomeOptions
from acker_redis.spark.streams.outcomes_source import OutcomesSource
from acker_redis.transport.urls import RedisUrl
from tests.spark.waiting_verdicts import SECRET, TASK


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"namespace": ""}, "option namespace is missing"),
        ({"namespace": "a b"}, "option namespace"),
        ({"source": ""}, "option source is missing"),
        ({"source": "a b"}, "option source"),
        ({"expand": "yes"}, "option expand must be true or false"),
        ({"failOnDataLoss": "1"}, "option failOnDataLoss must be true or false"),
        (
            {"maxEntriesPerTrigger": "0"},
            "option maxEntriesPerTrigger must be a number from 1 to 10000",
        ),
        ({"maxEntriesPerTrigger": "10001"}, "option maxEntriesPerTrigger"),
        ({"maxEntriesPerTrigger": "1e3"}, "option maxEntriesPerTrigger"),
        ({"task": "t"}, "option task: .* is the option source"),
        ({"limit": "5"}, "option limit: acker-outcomes has no such option"),
        ({"url": "http://x"}, "option url: "),
        ({"username": "me"}, "option password is missing"),
    ],
)
def test_wrong_options_are_named(given: dict[str, str], words: str) -> None:
    right = {"url": "redis://localhost", "namespace": "n", "source": TASK}
    with pytest.raises(ConfigError, match=words):
        OutcomesSource(right | given).schema()


def test_valid_options_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL_VARIABLE, "redis://elsewhere/3")
    found = OutcomeOptions.parse({"NAMESPACE": "n", "Source": TASK, "path": "x", "__internal": "y"})
    assert found == OutcomeOptions(Target("n", "redis://elsewhere/3"), TASK)
    monkeypatch.delenv(URL_VARIABLE)
    with pytest.raises(ConfigError, match="option url is missing.*ACKER_REDIS_URL"):
        OutcomeOptions.parse({"namespace": "n", "source": TASK})


@pytest.mark.parametrize(
    "url",
    ["redis://h:7/2", "rediss+sentinel://a,b:5/main/1", "unix:///x?db=2", "redis+cluster://h"],
)
def test_login_options_are_added_to_the_url(url: str) -> None:
    plain = {"url": url, "namespace": "n", "source": TASK}
    for login in ({"password": SECRET}, {"password": SECRET, "username": "m:e"}):
        found = RedisUrl.parse(OutcomeOptions.parse(plain | login).target.url)
        assert (found.username, found.password) == (login.get("username"), SECRET)
        without = RedisUrl.parse(url)
        assert (found.hosts, found.path, found.db) == (without.hosts, without.path, without.db)


@pytest.mark.parametrize("url", ["redis://u:pw12@h", "redis://:@h", "redis://h?password=pw12"])
def test_password_in_two_places_is_refused(url: str) -> None:
    plain = {"url": url, "namespace": "n", "source": TASK, "password": SECRET}
    with pytest.raises(ConfigError, match="in one place") as raised:
        OutcomeOptions.parse(plain)
    assert "pw12" not in str(raised.value)
    assert SECRET not in str(raised.value)
