"""Commands that create, configure, reshard and drop namespaces."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from acker_redis.cli import options
from acker_redis.cli.options import AsJson, Namespace, Url, Yes, add
from acker_redis.cli.output import confirm, end_cleanly, say, say_json, warn
from acker_redis.protocol.config import (
    CHANGEABLE,
    CREATED,
    PROFILES,
    AckerConfig,
    Profile,
    Refresh,
    requested_config,
    wire,
)
from acker_redis.terminal import count_of

if TYPE_CHECKING:
    from acker_redis.sync.client import Acker

DEFAULTS = AckerConfig()
LIFETIME = ("tick_ms", "deadline_ms")
"""Fields that change how long trees live."""


def create(
    context: typer.Context,
    namespace: Namespace,
    url: Url = None,
    profile: Annotated[
        Profile,
        typer.Option(
            help="What the trees are for; it sets the defaults. spark: ticks of 10 min, a "
            "high-water mark of 2,000,000, up to 10,000,000 waiting verdicts per source"
        ),
    ] = "service",
    shards: Annotated[
        int, typer.Option(help="Number of shards, a power of two up to 1024")
    ] = DEFAULTS.shards,
    buckets: Annotated[int, typer.Option(help="Number of buckets, 2 to 16")] = DEFAULTS.buckets,
    tick_ms: Annotated[int, typer.Option(help="Time between rotations in ms")] = DEFAULTS.tick_ms,
    high_water: Annotated[
        int,
        typer.Option(
            help="Pending trees at which sources wait; at twice this number, new trees are nacked"
        ),
    ] = DEFAULTS.high_water,
    refresh: Annotated[
        Refresh,
        typer.Option(
            help="never: only a touch resets a tree's timeout; update: every row does, up to the "
            "deadline"
        ),
    ] = DEFAULTS.refresh,
    deadline_ms: Annotated[
        int,
        typer.Option(
            help="With --refresh update: longest life of a tree in ms, from its first row; at "
            "least buckets * tick-ms"
        ),
    ] = DEFAULTS.deadline_ms,
    outcomes_limit: Annotated[
        int, typer.Option(help="Maximum number of waiting verdicts per source")
    ] = DEFAULTS.outcomes_limit,
    publish: Annotated[bool, typer.Option(help="Publish verdicts on pub/sub")] = DEFAULTS.publish,
    edge: Annotated[
        list[str] | None,
        typer.Option(
            help="Name of an edge, mostly a queue, topic or table; repeat the option for up to 8"
        ),
    ] = None,
    slo_target: Annotated[
        float,
        typer.Option(
            help="Service level objective: percentage of trees that must complete in time, 50 to "
            "99.999"
        ),
    ] = DEFAULTS.slo_target,
    slo_ms: Annotated[
        int,
        typer.Option(
            help="Time in ms within which a tree must complete to count as good; 0: before it "
            "expires"
        ),
    ] = DEFAULTS.slo_ms,
    as_json: AsJson = False,
) -> None:
    """Create a namespace. Repeating the same command is a no-op.

    Of a namespace that exists, only the settings in the command are compared. If one differs, the
    command fails and changes nothing.

    Edges are the ways on which messages go from one step to the next. The ids of messages name
    their edge, so the verdict of a tree that expired names the edges on which messages are missing.
    Edges and their order cannot be changed later.
    """
    settings: dict[str, Any] = {
        "shards": shards,
        "buckets": buckets,
        "tick_ms": tick_ms,
        "high_water": high_water,
        "refresh": refresh,
        "deadline_ms": deadline_ms,
        "outcomes_limit": outcomes_limit,
        "publish": publish,
        "slo_target": slo_target,
        "slo_ms": slo_ms,
    }
    given = {name: value for name, value in settings.items() if _is_given(context, name)}
    if edge:
        given["edges"] = tuple(edge)
    with options.acker(namespace, url) as acker:
        config = _wanted(acker, profile, given, _is_given(context, "profile"))
        made = acker.create(config)
        _warn_of_eviction(acker)
    if as_json:
        from acker_redis.cli import shapes

        say_json({"namespace": namespace, "created": made, "config": shapes.config(config)})
    else:
        state = "created" if made else "exists, with these settings; nothing changed"
        say(f"{namespace}: {state}")
        say(_lifetime(config))


def _wanted(
    acker: "Acker", profile: Profile, given: dict[str, Any], with_profile: bool
) -> AckerConfig:
    """Return the settings of the command, and for others those that the namespace already has."""
    from acker_redis.errors import NamespaceNotFoundError, SchemaError

    try:
        there = acker.config
    except (NamespaceNotFoundError, SchemaError):
        return AckerConfig.for_profile(profile, **given)
    wanted = given
    if with_profile:
        settings = AckerConfig.for_profile(profile)
        names = {name for each in PROFILES.values() for name in each}
        wanted = {name: getattr(settings, name) for name in sorted(names)} | given
    return requested_config(acker.namespace, there, wanted)


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _lifetime(config: AckerConfig) -> str:
    """Return how long a record may take in this namespace, and how many may be pending."""
    from acker_redis.doctor.words import span

    least, most = span(config.fence_ms), span(config.timeout_ms)
    since = "first message"
    if config.deadline_ms:
        since = f"last message, and at most {span(config.lifetime_ms)} after its first one"
    return (
        f"a tree that is not complete expires {least} to {most} after its {since}; sources wait "
        f"from {config.high_water:,} pending trees on"
    )


def _warn_of_eviction(acker: "Acker") -> None:
    """Warn, with the doctor's words, if Redis may evict the keys of the namespace.

    A user without the right to INFO gets no warning; the doctor reports the check as skipped.
    """
    from acker_redis.doctor.checks_server import eviction_by
    from acker_redis.transport.errors import FAILED

    try:
        info = acker.connection.client.info("memory")
    except FAILED:
        return
    policy = info.get("maxmemory_policy")
    found = eviction_by(str(policy)) if policy else None
    if found and found.level != "ok":
        warn(f"{found.detail}; {found.fix}")


def namespaces(url: Url = None, as_json: AsJson = False) -> None:
    """List the namespaces of this Redis."""
    from acker_redis.flows.namespace_list import read_names
    from acker_redis.sync.connection import Connection

    connection = Connection(options.settings(url).connect())
    found = connection.drive(read_names())
    connection.close()
    if as_json:
        say_json({"namespaces": found})
    else:
        for name in found:
            say(name)


def config_get(namespace: Namespace, url: Url = None, as_json: AsJson = False) -> None:
    """Show a namespace's configuration."""
    from acker_redis.cli import shapes

    with options.acker(namespace, url) as acker:
        fields = shapes.config(acker.config)
    if as_json:
        say_json(fields)
    else:
        for name, value in fields.items():
            say(f"{name:15} {_text(name, value)}".rstrip())


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return wire(name, value)
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _complete_field(incomplete: str) -> list[str]:
    return [each for each in CHANGEABLE if each.startswith(incomplete)]


def _check_field(context: typer.Context, field: str) -> str:
    if field in CHANGEABLE or context.resilient_parsing:
        return field
    name = context.params.get("namespace", "NAMESPACE")
    if field == "shards":
        words = f"the shards are changed by: acker-redis reshard {name} --shards N"
    elif field in CREATED:
        words = (
            f"{field} is fixed at creation; drop {name} and create it again, or use another name"
        )
    else:
        words = f"{field!r} is none of {', '.join(CHANGEABLE)}"
    raise typer.BadParameter(words)


def config_set(
    namespace: Namespace,
    field: Annotated[
        str,
        typer.Argument(
            help=f"Field to change: {', '.join(CHANGEABLE)}",
            callback=_check_field,
            autocompletion=_complete_field,
        ),
    ],
    value: Annotated[float, typer.Argument(help="New value; a whole number, but for slo_target")],
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Change a setting of a namespace in use.

    A new deadline_ms counts for a tree from its next row on, a new slo_ms for trees that end from
    now on.

    If the command was interrupted, run it again: some shards may still have the old value.
    """
    from acker_redis.cli import shapes

    number = int(value) if value.is_integer() else value
    with options.acker(namespace, url) as acker:
        config = acker.configure(**{field: number})  # type: ignore[arg-type]  # it checks its values
    if as_json:
        say_json({"namespace": namespace, "config": shapes.config(config)})
    else:
        now = f"; pending trees live up to {config.lifetime_ms / 1000:,g} s"
        say(f"{namespace}: {field} set to {number}{now if field in LIFETIME else ''}")


def drop(namespace: Namespace, url: Url = None, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a namespace with all its pending trees and waiting verdicts.

    A source that still runs keeps its own list of pending records, and replays them. If the command
    was interrupted, run it again.
    """
    from acker_redis.errors import NamespaceNotFoundError, RedisRefusedError, SchemaError

    with options.acker(namespace, url) as acker:
        try:
            state = acker.status()
            pending, waiting = state.open, sum(state.backlog.values())
        except (NamespaceNotFoundError, SchemaError, RedisRefusedError):
            pending = waiting = 0  # the namespace may be partially dropped, or damaged
        if not yes:
            confirm(
                f"drop {namespace} with {pending:,} pending trees and {waiting:,} waiting verdicts?"
            )
        acker.drop()
    if as_json:
        say_json({"namespace": namespace, "dropped": True, "pending": pending, "waiting": waiting})
    else:
        say(f"{namespace}: dropped with {pending:,} pending trees and {waiting:,} waiting verdicts")


def reshard(
    namespace: Namespace,
    shards: Annotated[
        int | None,
        typer.Option(help="New number of shards, a power of two up to 1024", show_default=False),
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option(
            min=0, help="Seconds to wait for bolts and sources; default: 1.1 * N ticks + 60 s"
        ),
    ] = None,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Cancel a reshard that was interrupted")
    ] = False,
    url: Url = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Change the number of shards of a namespace in use.

    During the reshard no new tree is tracked, and sources wait. The reshard waits until all pending
    trees have ended: at most N ticks (N buckets), unless a touch restarts the clock of a tree; with
    refresh=update, at most the deadline and a tick. To reduce the number of shards, it also waits
    until the sources have taken all verdicts of the removed shards.

    Stop Spark queries first. While the number of shards is reduced, do not kill sources: a killed
    source may miss verdicts of the removed shards. Ctrl-C, or the timeout of --wait, leaves the
    namespace as it was. If the command was killed, run it again.
    """
    from acker_redis.cli import shapes
    from acker_redis.cli.reshard import follow
    from acker_redis.ops.reshard import reshard as run

    if cancel == (shards is not None):
        raise typer.BadParameter("give either --shards N or --cancel")
    idle = ""
    with options.acker(namespace, url) as acker:
        if shards is None:
            config, idle = _cancel(acker)
        else:
            replace(acker.config, shards=shards).validate()
            if not yes and shards != acker.config.shards:
                _confirm_reshard(acker, shards)
            end_cleanly()  # SIGTERM cancels the reshard, too
            with follow() as report:
                config = run(acker, shards, wait=wait, on_progress=report)
    if as_json:
        say_json({"namespace": namespace, "config": shapes.config(config)})
    else:
        say(f"{namespace}: has {count_of(config.shards, 'shard')}{idle}")


def _cancel(acker: "Acker") -> tuple[AckerConfig, str]:
    """Cancel a reshard; return the configuration, and words for the output."""
    from acker_redis.errors import NamespaceNotFoundError
    from acker_redis.ops.reshard import cancel

    try:
        moved = acker.status().shards[0].reshard is not None
    except NamespaceNotFoundError:
        moved = True  # a shard is missing
    return cancel(acker), "; reshard cancelled" if moved else "; no reshard was in progress"


def _confirm_reshard(acker: "Acker", shards: int) -> None:
    from acker_redis.errors import NamespaceNotFoundError

    now = acker.config
    try:
        waiting = ", ".join(source for source, count in acker.status().backlog.items() if count)
    except NamespaceNotFoundError:
        waiting = ""  # a shard is missing, and the reshard creates it
    confirm(
        f"reshard {acker.namespace} from {now.shards} to {count_of(shards, 'shard')}? no new "
        f"tree is tracked for up to {now.lifetime_ms / 1000:,g} s, or longer while verdicts "
        "wait on removed shards" + (f" (verdicts wait now for: {waiting})" if waiting else "")
    )


def acl(
    role: Annotated[
        Literal["producer", "source", "rotator", "viewer", "admin"],
        typer.Argument(help="Role of the user"),
    ],
    namespace: Annotated[
        str | None,
        typer.Argument(help="Namespace; default: all namespaces", show_default=False),
    ] = None,
    user: Annotated[
        str | None, typer.Option(help="Name of the user; default: the name of the role")
    ] = None,
    password_file: Annotated[
        Path | None,
        typer.Option(help="File with the password, - for stdin; without it, use ACL SETUSER later"),
    ] = None,
    functions: Annotated[
        bool,
        typer.Option(
            "--functions", help="FCALL_RO instead of EVAL; viewer only, Redis 7.0 or later"
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print a line for an ACL file that creates a user; it has the SHA256 of the password."""
    from acker_redis.ops import acl as rights
    from acker_redis.ops.settings import read_secret

    password = None
    if password_file:
        path = Path("/dev/stdin") if str(password_file) == "-" else password_file
        password = read_secret(path, "--password-file")
    line = rights.rule(role, namespace, user, password, functions=functions)
    if as_json:
        granted = sorted(rights.commands(role, functions))
        found = {"role": role, "namespace": namespace, "commands": granted}
        say_json({**found, "rule": line})
    else:
        say(line)


def functions_load(url: Url = None, as_json: AsJson = False) -> None:
    """Load the read-only scripts as Redis functions, for viewers without EVAL.

    Load them again after an update of acker-redis. The command needs Redis 7.0 or Valkey, and a
    user with the right to FUNCTION LOAD.
    """
    from acker_redis.protocol.functions import load
    from acker_redis.sync.connection import Connection

    connection = Connection(options.settings(url).connect())
    name = load(connection)
    connection.close()
    if as_json:
        say_json({"library": name})
    else:
        say(f"{name}: loaded")


def scripts(
    out: Annotated[
        Path,
        typer.Option(help="Folder to write to; created if missing", show_default=False),
    ],
    as_json: AsJson = False,
) -> None:
    """Write the Lua scripts to files, one per script, for a client in another language.

    Ship the files byte for byte: Redis identifies a script by the SHA1 of its text.
    """
    from acker_redis.protocol import scripts as lua

    written = lua.write(out)
    if as_json:
        say_json(
            {path.stem: {"file": str(path), "sha1": lua.load(path.stem).sha} for path in written}
        )
    else:
        say(f"{out}: {len(written)} scripts written")


PANEL = "Namespaces"


def register(app: typer.Typer) -> None:
    """Register the commands."""
    add(
        app,
        PANEL,
        create,
        "create orders --shards 4 --tick-ms 60000 --high-water 1000000",
        "create orders --edge mill --edge shop",
        "create orders --refresh update --deadline-ms 600000",
    )
    add(app, PANEL, namespaces, "namespaces")
    config = typer.Typer(no_args_is_help=True, help="Show or change a namespace's configuration.")
    add(config, PANEL, config_get, "config get orders --json", name="get")
    add(
        config,
        PANEL,
        config_set,
        "config set orders high_water 2000000",
        "config set orders slo_target 99.95",
        name="set",
        # Otherwise a negative number would be an unknown option, not an invalid value.
        ignore_unknown_options=True,
    )
    app.add_typer(config, name="config", rich_help_panel=PANEL)
    add(app, PANEL, reshard, "reshard orders --shards 8", "reshard orders --cancel")
    add(
        app,
        PANEL,
        acl,
        "acl producer orders --user shop --password-file secret.txt >> users.acl",
        "acl viewer orders --functions --password-file secret.txt >> users.acl",
    )
    functions = typer.Typer(
        no_args_is_help=True, help="Load Redis functions for viewers without EVAL."
    )
    add(functions, PANEL, functions_load, "functions load", name="load")
    app.add_typer(functions, name="functions", rich_help_panel=PANEL)
    add(app, PANEL, scripts, "scripts --out acker-scripts")
    add(app, PANEL, drop, "drop orders", "drop orders --yes")
