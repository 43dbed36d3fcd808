"""Extras: an error names the one that is missing, and every hint works in a checkout."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from acker_redis.errors import how_to_install

ROOT = Path(__file__).parents[2]

MISSING = {
    "acker_redis.integrations.aiokafka TrackedAsyncConsumer": ("aiokafka", "aiokafka"),
    "acker_redis.integrations.celery TaskTracker": ("billiard", "celery"),
    "acker_redis.integrations.http TrackedAsyncTransport": ("httpx", "http"),
    "acker_redis.integrations.http TrackedTransport": ("httpx", "http"),
    "acker_redis.integrations.kafka TrackedProducer": ("confluent_kafka", "kafka"),
    "acker_redis.integrations.otel trace_verdicts": ("opentelemetry", "otel"),
    "acker_redis.integrations.rabbitmq RabbitSender": ("pika", "rabbitmq"),
    "acker_redis.integrations.sqs SqsWorker": ("botocore", "sqs"),
    "acker_redis.spark FileQueue": ("pyspark", "spark-local"),
    "acker_redis.spark explain": ("numpy", "spark"),
}
"""Public names with the library that is missing first, and the extra that installs it."""

PROGRAM = """
import importlib, json, sys
names, said = json.loads(sys.argv[1]), {}
for name, (library, _) in names.items():
    for module in list(sys.modules):
        if module.partition(".")[0] in ("acker_redis", library):
            del sys.modules[module]
    sys.modules[library] = None
    package, _, name_in_it = name.partition(" ")
    try:
        importlib.import_module("acker_redis.integrations.http").TrackedRequests
        getattr(importlib.import_module(package), name_in_it)
    except importlib.import_module("acker_redis").AckerError as error:
        said[name] = [isinstance(error, ImportError), error.name.partition(".")[0], str(error)]
    del sys.modules[library]
json.dump(said, sys.stdout)
"""


def test_missing_library_is_an_error_that_names_its_extra() -> None:
    program = [sys.executable, "-c", PROGRAM, json.dumps(MISSING)]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    said = json.loads(done.stdout)
    assert list(said) == list(MISSING)
    for name, (library, extra) in MISSING.items():
        assert extra in extras["optional-dependencies"]
        is_one, missing, words = said[name]
        assert (is_one, missing) == (True, library)
        assert words.endswith(f" needs {library}: run {how_to_install(extra)}")


def test_hints_to_install_work_in_a_checkout() -> None:
    """The package is not published; an example installs its wheel by a path."""
    files = [ROOT / "README.md", *(ROOT / "acker_redis").rglob("*.py")]
    for folder in ("api/acker_api", "docs", "examples", "clients", "deploy"):
        for kind in ("*.py", "*.md", "*.js", "*.html", "*.ipynb", "*.yml"):
            files += (ROOT / folder).rglob(kind)
    published = re.compile(r"(?:pip|uv|pipx) (?:add|install) [^`\n]*\backer-redis\b(?!.* @ file:)")
    wrong = [
        f"{file.relative_to(ROOT)}: {found[0]}"
        for file in files
        if "node_modules" not in file.parts and "vendor" not in file.parts
        for found in published.finditer(file.read_text())
    ]
    assert not [each for each in wrong if "in a checkout of acker-redis" not in each], wrong
