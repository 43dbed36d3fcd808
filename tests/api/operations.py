"""Every operation of the API with a valid request, for tests that try all of them."""

from dataclasses import dataclass
from typing import Any

import httpx

from acker_api.auth.tokens import Role

V1 = "/api/v1"
HERE = f"{V1}/namespaces/{{namespace}}"
NEW = "new-namespace"


@dataclass(frozen=True)
class Operation:
    """A route, and a request for it."""

    method: str
    template: str
    role: Role | None
    """None: open to all callers."""
    body: Any = None
    query: str = ""
    bad_query: str = ""
    """An invalid query."""
    bad_body: Any = None
    action: str = ""
    """Its name in the audit log."""

    @property
    def key(self) -> tuple[str, str]:
        """The key of the operation in OpenAPI."""
        return self.method, self.template

    @property
    def changes(self) -> bool:
        """Whether the operation may change something."""
        return self.method != "GET"

    def path(self, namespace: str = "", anchor: str = "7") -> str:
        """Return path and query; the number of a block is always 5."""
        path = self.template.format(namespace=namespace, anchor=anchor, block=5)
        return path + self.query.format(namespace=namespace)

    async def ask(
        self,
        client: httpx.AsyncClient,
        namespace: str = "",
        headers: dict[str, str] | None = None,
        anchor: str = "7",
    ) -> httpx.Response:
        """Send the request."""
        path = self.path(namespace, anchor)
        body = self.body
        if body and "name" in body:
            body = {**body, "name": body["name"] or namespace}
        return await client.request(self.method, path, json=body, headers=headers)


WHY = {"why": "by hand"}
OPERATIONS = (
    Operation("GET", f"{V1}/session", None, bad_query="?x=1"),
    Operation("POST", f"{V1}/session", None, {"token": "no such token"}, bad_body={}),
    Operation("DELETE", f"{V1}/session", None, bad_query="?x=1"),
    Operation("GET", f"{V1}/namespaces", Role.VIEWER, bad_query="?limit=0"),
    Operation(
        "POST",
        f"{V1}/namespaces",
        Role.ADMIN,
        {"name": "", "tick_ms": 3_600_000},
        bad_body={"name": "x", "shards": 3},
        action="create_namespace",
    ),
    Operation("GET", HERE, Role.VIEWER),
    Operation(
        "DELETE",
        HERE,
        Role.ADMIN,
        query="?confirm={namespace}",
        bad_query="?confirm=other",
        action="drop_namespace",
    ),
    Operation("GET", f"{HERE}/config", Role.VIEWER),
    Operation(
        "PATCH",
        f"{HERE}/config",
        Role.OPERATOR,
        {"high_water": 9},
        bad_body={},
        action="configure",
    ),
    Operation("GET", f"{HERE}/waits", Role.VIEWER, bad_query="?sample=0"),
    Operation("POST", f"{HERE}/rotate", Role.OPERATOR, action="rotate"),
    Operation("GET", f"{HERE}/trees", Role.VIEWER, bad_query="?cursor=x"),
    Operation(
        "POST",
        f"{HERE}/trees/fail",
        Role.OPERATOR,
        {"filter": {"source": "t"}, "dry_run": False},
        bad_body={"filter": {}},
        action="fail_trees",
    ),
    Operation("GET", f"{HERE}/trees/{{anchor}}", Role.VIEWER),
    Operation(
        "POST",
        f"{HERE}/trees/{{anchor}}/fail",
        Role.OPERATOR,
        WHY,
        bad_body={"why": "a\nb"},
        action="fail_tree",
    ),
    Operation("POST", f"{HERE}/trees/{{anchor}}/touch", Role.OPERATOR, action="touch_tree"),
    Operation("GET", f"{HERE}/blocks/{{block}}", Role.VIEWER),
    Operation("GET", f"{HERE}/outcomes", Role.VIEWER, bad_query="?before=x"),
    Operation("GET", f"{HERE}/backlog", Role.VIEWER, bad_query="?limit=0"),
    Operation("GET", f"{V1}/audit", Role.VIEWER, bad_query="?before=x"),
)
ACTIONS = tuple(each for each in OPERATIONS if each.action)
