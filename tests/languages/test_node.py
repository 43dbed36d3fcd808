"""Tests that only the Node client has: its unit tests, its types, its package."""

import json
import os
import subprocess

import pytest

from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol.config import AckerConfig
from acker_redis.sync.client import Acker
from tests.cluster.servers import Cluster, spread
from tests.conftest import MakeAcker, missing
from tests.languages.clients import CLIENTS
from tests.waiting import LIMIT

NODE = CLIENTS["node"]


@pytest.fixture(autouse=True)
def built() -> None:
    if lacks := NODE.lacks():
        missing(f"{lacks}, for the client in Node,")
    NODE.prepare()


def run(*words: str, **environment: str) -> str:
    done = subprocess.run(
        words,
        cwd=NODE.folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_node_unit_tests_pass(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(shards=2)
    said = run(
        *("node", "--test", "--test-reporter=tap", "test/acker.test.js"),
        ACKER_REDIS_URL=any_server.url,
        ACKER_NAMESPACE=acker.namespace,
        ACKER_LOW=make_any_acker(high_water=1).namespace,
    )
    assert "# fail 0" in said
    assert int(said.partition("# pass ")[2].split()[0]) >= 12


def test_node_readme_program_runs(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    namespace = make_any_acker().namespace
    code = (NODE.folder / "README.md").read_text().partition("```js\n")[2].partition("```")[0]
    said = run(
        *("node", "--input-type=module", "-e", code.replace("'orders'", f"'{namespace}'")),
        ACKER_REDIS_URL=any_server.url,
    )
    assert said == "order-1 nack no such address\n"


CLUSTER_PROGRAM = """
import { Redis } from 'ioredis';
import { Acker } from 'acker-redis';
const { PORT, NAMESPACE } = process.env;
const nodes = [{ host: '127.0.0.1', port: Number(PORT) }];
const client = new Redis.Cluster(nodes, { enableAutoPipelining: true });
const acker = new Acker(client, NAMESPACE);
const names = Array.from({ length: 40 }, (_, n) => `s${n}`);
const trees = await Promise.all(names.map((sourceId) => acker.track({ task: 't', sourceId })));
await Promise.all(trees.map(async ({ ids }) => (await acker.process(ids[0])).ack()));
let count = 0;
for await (const { verdict } of acker.outcomes('t')) count += verdict === 'ack';
console.log(count);
await acker.close();
client.disconnect();
"""


def test_ioredis_with_automatic_pipelines_on_a_cluster(masters: Cluster) -> None:
    """The shards are on different nodes; a pipeline would go to one of them."""
    namespace = spread(masters, 8)
    with masters.client() as client:
        Acker(client, namespace).create(AckerConfig(shards=8))
    said = run(
        *("node", "--input-type=module", "-e", CLUSTER_PROGRAM),
        PORT=str(masters.nodes[0].server.port),
        NAMESPACE=namespace,
    )
    assert said == "40\n"


def test_node_types_compile() -> None:
    run("npx", "--no-install", "tsc", "-p", ".")


def test_node_package_has_the_scripts_and_no_dependency() -> None:
    (packed,) = json.loads(run("npm", "pack", "--dry-run", "--json"))
    names = {file["path"] for file in packed["files"]}
    assert {f"lua/{name}.lua" for name in ("apply", "apply_blocks", "status", "take")} <= names
    assert {"index.js", "batch.js", "redis.js", "errors.js", "index.d.ts", "README.md"} <= names
    assert not {name for name in names if name.startswith(("test/", "node_modules/", "driver"))}
    package = json.loads((NODE.folder / "package.json").read_text())
    assert "dependencies" not in package
    # The lock file must not name a registry.
    assert "resolved" not in (NODE.folder / "package-lock.json").read_text()
