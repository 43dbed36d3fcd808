"""Write the .acl files of this folder; run this after a change of acker_redis/ops/acl.py.

    python deploy/acl/render.py

<role>.acl is the rule of a role in namespace ``orders``, as an example. users.acl has the users of
docker-compose.yml without passwords; deploy/secrets.sh adds the hashes of the passwords.
"""

from pathlib import Path

from acker_redis.ops import acl

HERE = Path(__file__).resolve().parent
EXAMPLE = "orders"

SERVICES: dict[str, tuple[str, str | None]] = {
    "admin": ("admin", None),
    "rotator": ("rotator", None),
    "viewer": ("viewer", None),
    "producer": ("producer", EXAMPLE),
    "source": ("source", EXAMPLE),
    "demo": ("admin", "flights"),
}
"""Users of the services and of a first namespace: role and namespace (None: all)."""

SERVERS = {
    # A client without a login may do nothing.
    "default": "user default reset off resetkeys resetchannels -@all",
    # The health check of the containers.
    "health": "user health reset on resetkeys resetchannels -@all +ping",
    # Commands that a replica sends to its master.
    "replica": "user replica reset on resetkeys resetchannels -@all +ping +psync +replconf",
    # redis-cli --cluster create, which runs once.
    "cluster": "user cluster reset on resetkeys resetchannels -@all +cluster +info +ping",
}
"""Users for health checks, replication and the creation of the cluster."""


def files() -> dict[str, str]:
    """Return the text of every file by its name."""
    texts = {f"{role}.acl": acl.rule(role, EXAMPLE, f"{EXAMPLE}-{role}") for role in acl.roles()}
    services = [acl.rule(role, of, user) for user, (role, of) in SERVICES.items()]
    texts["users.acl"] = "\n".join([*SERVERS.values(), *services])
    return {name: f"{text}\n" for name, text in texts.items()}


if __name__ == "__main__":
    for name, text in files().items():
        (HERE / name).write_text(text)
