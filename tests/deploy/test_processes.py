"""Every container of docker-compose.yml, as a plain process."""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

from acker_redis import Acker, Batch
from acker_redis.embedded.binary import find_on_path
from tests.conftest import missing
from tests.deploy.compose import Container, Project, free_ports, load, project
from tests.deploy.metrics import METRICS
from tests.waiting import LIMIT, wait_until

NODES = {name: f"172.31.97.{10 + number}" for number in range(1, 7) for name in [f"node-{number}"]}


@pytest.fixture(scope="module")
def programs() -> Path:
    """Return the folder of redis-server and redis-cli, 7.0 or later for the names of settings."""
    binary = find_on_path()
    if (
        binary is None
        or binary.path.name != "redis-server"
        or int(binary.version.split(".")[0]) < 7
    ):
        missing("redis-server 7.0 or later on PATH")
    return binary.path.parent


@dataclass
class Running:
    """The containers that `docker compose up` starts."""

    project: Project
    redis: Container
    rotators: list[Container]
    api: Container

    def client(self, user: str) -> redis.Redis:
        """Return a client that logs in as a user."""
        password = self.project.secret(f"{user}_password")
        return redis.Redis(port=self.redis.port, username=user, password=password)

    def acker(self, user: str) -> Acker:
        """Return an acker that logs in as a user."""
        return Acker(self.client(user), "orders")

    def command(self, *words: str) -> str:
        """Run `docker compose run --rm cli ...`; return its output."""
        hosts = {"redis:6379": f"127.0.0.1:{self.redis.port}"}
        done = self.project.container("cli", hosts=hosts).run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def get(self, path: str, token: str = "") -> tuple[int, str]:
        """Return status and body of a reply of the admin service."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.api.port}{path}")
        if token:
            request.add_header("Authorization", f"Bearer {self.project.secret(token)}")
        try:
            with urllib.request.urlopen(request, timeout=LIMIT) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, programs: Path) -> Iterator[Running]:
    with project(tmp_path_factory.mktemp("compose"), programs) as some:
        redis_port, api_port = free_ports(2)
        server = some.container("redis", redis_port)
        server.start()
        server.wait_until_healthy()
        hosts = {"redis:6379": f"127.0.0.1:{server.port}"}
        replicas = some.file["services"]["rotator"]["deploy"]["replicas"]
        rotators = [some.container("rotator", hosts=hosts) for _ in range(replicas)]
        api = some.container("api", api_port, hosts)
        for container in (*rotators, api):
            container.start()
        yield Running(some, server, rotators, api)
        for container in (*rotators, api):
            container.end()
        for container in (*rotators, api):
            assert container.wait() == 0, container.log.read_text()
        server.end()
        assert server.wait() == 0, server.log.read_text()
        for container in (*rotators, api, server):
            assert container.written_elsewhere() == []


def test_redis_has_its_settings_and_requires_a_password(running: Running) -> None:
    anonymous = redis.Connection(port=running.redis.port, protocol=2)
    for words in (["PING"], ["AUTH", "default", ""], ["AUTH", ""]):
        anonymous.send_command(*words, check_health=False)
        with pytest.raises(redis.RedisError, match="Authentication required|invalid username"):
            anonymous.read_response()
    anonymous.disconnect()
    with running.client("admin") as admin:
        settings = admin.config_get("*")
        assert settings["maxmemory-policy"] == "noeviction"
        assert settings["maxmemory"] == str(2**30)
        assert (settings["appendonly"], settings["appendfsync"]) == ("yes", "everysec")
        assert settings["hash-max-listpack-entries"] == "64"
        assert Path(settings["dir"]).parent == running.redis.folder
    assert (running.redis.folder / "data" / "appendonlydir").is_dir()


def test_all_services_become_healthy(running: Running) -> None:
    for container in (running.redis, *running.rotators, running.api):
        container.wait_until_healthy()


def test_an_unacked_tree_expires_and_an_acked_tree_completes(running: Running) -> None:
    """The admin creates, a source tracks, a rotator expires, and the source reads verdicts."""
    running.command("create", "orders", "--tick-ms", "50", "--buckets", "2")
    reasons: dict[str, str] = {}
    with running.acker("source") as source, running.acker("producer") as producer:
        batch = Batch("shop")
        batch.track(7, "lost", [40])
        source.apply(batch)

        def has_verdict(source_id: str) -> bool:
            reasons.update({o.source_id: o.reason for o in source.outcomes("shop")})
            return source_id in reasons

        wait_until(lambda: has_verdict("lost"), "a verdict on a tree without an ack", pause=0.05)
        assert reasons == {"lost": "expired"}
        # A tree lives for 50 ms at least, so on a machine that stalls it may expire before its ack.
        for attempt in range(1, 100):
            tracked, acked = Batch("shop"), Batch()
            tracked.track(7 + attempt, f"found {attempt}", [50])
            source.apply(tracked)
            acked.ack(7 + attempt, 50)
            producer.apply(acked)
            wait_until(lambda n=attempt: has_verdict(f"found {n}"), "a verdict on it", pause=0.05)  # type: ignore[misc]
            if reasons[f"found {attempt}"] == "completed":
                break
    assert "completed" in reasons.values()
    status = json.loads(running.command("status", "orders", "--json"))
    assert "orders" in json.dumps(status)
    wait_until(lambda: running.get("/readyz")[0] == 200, "the service is ready", pause=0.2)

    # Redis refused no command of the services, except INFO and the canary (first command: EXISTS)
    # of the admin service, which are optional.
    with running.client("admin") as admin:
        counts = admin.info("commandstats")
    rejected = {name for name, each in counts.items() if each["rejected_calls"]}
    # Another test sends PING without a login.
    assert rejected <= {"cmdstat_info", "cmdstat_ping", "cmdstat_exists"}


def test_metrics_are_those_of_dashboard_and_alerts(running: Running) -> None:
    assert running.get("/metrics")[0] == 401
    running.command("create", "parcels", "--edge", "mill")
    running.command("track", "parcels", "shop", "waits", "--edge", "mill")
    # With these ticks, the shop is not forgotten on a machine that stalls.
    running.command("track", "parcels", "shop", "done", "--messages", "0")
    text = ""

    def all_read() -> bool:
        nonlocal text
        status, text = running.get("/metrics", "api_metrics_token")
        assert status == 200
        # The service reads a namespace within a second, or reports an error.
        names = ("acker_oldest_pending_age_seconds", "acker_waiting_idle_seconds_sampled")
        return 'source="shop"' in text and all(f"{name}{{" in text for name in names)

    wait_until(all_read, "a namespace that was read", pause=0.2)
    for name, labels in METRICS.items():
        found = re.findall(rf"^{name}\{{([^}}]*)\}}", text, re.MULTILINE)
        assert found, name
        for line in found:
            assert set(re.findall(r'(\w+)="', line)) == set(labels), name
    assert running.get("/api/v1/namespaces", "api_metrics_token")[0] in (401, 403)
    seen = "/api/v1/namespaces", "api_token"
    wait_until(lambda: running.get(*seen)[0] == 200, "the namespaces", pause=0.2)


def test_six_nodes_become_a_cluster(tmp_path: Path, programs: Path) -> None:
    ports = dict(zip(NODES, free_ports(len(NODES)), strict=True))
    hosts = {f"{NODES[name]}:6379": f"127.0.0.1:{port}" for name, port in ports.items()}
    url = "redis+cluster://" + ",".join(f"{NODES[name]}:6379" for name in list(NODES)[:2])
    with project(tmp_path, programs, REDIS_URL=url) as some:
        nodes = [some.container(name, port, hosts) for name, port in ports.items()]
        for node in nodes:
            node.start()
        for node in nodes:
            node.wait_until_healthy()
        create = some.container("create-cluster", hosts=hosts)
        for words in (
            "[OK] All 16384 slots covered",
            "the cluster exists already; nothing was changed",
        ):
            done = create.run()
            assert done.returncode == 0, done.stdout + done.stderr
            assert words in done.stdout
            assert done.stdout.endswith("the cluster is up\n")

        def roles() -> list[tuple[str, str]]:
            found = []
            for port in ports.values():
                password = some.secret("admin_password")
                with redis.Redis(port=port, username="admin", password=password) as client:
                    info: dict[str, Any] = client.info("replication")
                    found.append((info["role"], info.get("master_link_status", "")))
            return sorted(found)

        # All replicas have logged in to their masters.
        settled = [("master", "")] * 3 + [("slave", "up")] * 3
        wait_until(lambda: roles() == settled, "replicas in step", pause=0.1)
        done = some.container("cli", hosts=hosts).run("create", "orders", "--shards", "8")
        assert done.returncode == 0, done.stderr
        for node in nodes:
            node.end()
        for node in nodes:
            assert node.wait() == 0, node.log.read_text()


def test_every_service_is_run_or_excluded_with_a_reason() -> None:
    """A service that these tests do not run has a reason."""
    run_here = {"redis", "rotator", "api", "cli", "create-cluster", *NODES}
    not_here = {
        "demo",  # starts Spark; tests/demo/test_demo.py runs it
        "prometheus",  # pip cannot install prometheus or grafana
        "grafana",
    }
    assert set(load(ACKER_REDIS_SECRETS=".")["services"]) == run_here | not_here
