"""The lint of the project's English finds what it is for, and its exceptions are needed."""

import re

import pytest

from tests.project import prose


@pytest.mark.parametrize("rule", prose.RULES, ids=lambda rule: rule.example)
def test_rule_finds_its_example_in_text_and_in_names(rule: prose.Rule) -> None:
    for text in (rule.example, rule.example.upper(), "test_" + rule.example.replace(" ", "_")):
        assert rule.instead in [found.instead for found in prose.find("a.py", text)]


@pytest.mark.parametrize(
    "text",
    [
        "What is a tuple tree? The messages that one record caused.",
        "Run the service behind a reverse proxy.",
        "The source keeps its own list.",
        "the value that cannot be parsed",
        "who: the user",
    ],
)
def test_plain_sentence_is_not_found(text: str) -> None:
    assert list(prose.find("a.md", text)) == []


def test_each_exception_is_needed_and_has_a_reason() -> None:
    for allowed in prose.ALLOWED:
        text = (prose.ROOT / allowed.file).read_text()
        found = [each for each in prose.find(allowed.file, text) if allowed.text in each.text]
        assert found, f"nothing to allow in {allowed.file}: {allowed.text}"
        assert len(allowed.reason) > 10
    assert len(prose.ALLOWED) <= 20, "the list of exceptions is short, or the rules are wrong"


def test_all_kinds_of_text_are_read_and_nothing_of_others() -> None:
    files = {path.as_posix() for path in prose.files()}
    assert {
        *("README.md", "acker_redis/errors.py", "lua/apply.lua", "lua/parts/fence.lua", "Makefile"),
        *("clients/go/client.go", "clients/c/client.c", "clients/perl/lib/Acker/Redis.pm"),
        *("api/acker_api/dashboard/js/main.js", "tests/tiers.py", ".ci/run", "deploy/README.md"),
        *("proof/cases/fences.jsonl", "docs/explanation/guarantees.md", "CHANGELOG.md"),
    } <= files
    assert not [each for each in files if "/vendor/" in each or re.match("clients/.*/lua/", each)]
