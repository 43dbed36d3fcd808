"""The searches: the runs in which all rules are kept, and those in which one rule is broken.

Each run is exhaustive within its bounds, which its title states. A run of a broken rule ends at
its first counterexample, which is a shortest one.
"""

from dataclasses import dataclass, field

FULL, MODEL, NIGHTLY = "full", "model", "nightly"
"""A run belongs to ``make test-all``, to ``make model``, or to the nightly tests; each contains the
runs before it."""


@dataclass(frozen=True, slots=True)
class Run:
    """One search: a model, its switches, and what they mean."""

    name: str
    title: str
    file: str
    switches: str
    """Definitions, separated by blanks; a rule to break is ``BREAK_NAME``."""
    tier: str = FULL
    broken: str = ""
    """The rule that is broken; '' for none."""
    by_client: bool = False
    """Whether a client breaks the rule. Then a correct shard gives the same verdicts."""
    values: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        pairs = (word.partition("=") for word in self.switches.split())
        object.__setattr__(self, "values", {name: value for name, _, value in pairs})

    @property
    def flags(self) -> list[str]:
        """The options of Spin."""
        names = self.switches.split() + ([f"BREAK_{self.broken}"] if self.broken else [])
        return [f"-D{name}" for name in names]

    @property
    def cycles(self) -> bool:
        """Whether the run searches for cycles: that something never happens."""
        return "ENDS" in self.values

    @property
    def replayable(self) -> bool:
        """Whether a history of one shard can be made of its trail."""
        return not self.cycles and self.file != "reshard.pml"

    @property
    def nightly(self) -> bool:
        """Whether the run is only in the nightly tests."""
        return self.tier == NIGHTLY

    @property
    def buckets(self) -> int:
        """Number of buckets of a shard."""
        return int(self.values.get("BUCKETS", "2"))

    @property
    def life(self) -> int:
        """Ticks from the first row of a tree to its deadline; 0 without one."""
        return int(self.values.get("LIFE", "0"))

    @property
    def durable(self) -> set[int]:
        """The lanes whose fences never expire."""
        if "DURABLE" in self.values:
            return {0, 1, 2}
        return {2} if "DRIVER" in self.values else set()


def _kept(name: str, title: str, file: str, switches: str, tier: str = FULL) -> Run:
    return Run(name, title, f"{file}.pml", switches, tier)


TWO = "MESSAGES=2 BUCKETS=2"
KEPT = (
    _kept("rows", "any row, any number of times, in any order; 4 messages", "rows", "MESSAGES=4"),
    _kept("rows-xor", "the same with ids of 2 bits: no fault, only collisions; 3 messages", "rows",
          "MESSAGES=3 FIELD=2"),
    _kept("rows-xor-3", "the same with ids of 3 bits; 3 messages", "rows", "MESSAGES=3 FIELD=3",
          MODEL),
    _kept("rows-5", "any row, any number of times, in any order; 5 messages", "rows", "MESSAGES=5",
          MODEL),
    _kept("rows-xor-4", "ids of 2 bits; 4 messages", "rows", "MESSAGES=4 FIELD=2", NIGHTLY),
    _kept("lanes", "lanes, fences and ticks, one delayed copy; 2 messages", "protocol",
          f"{TWO} NEEDLESS"),
    _kept("lanes-4", "durable lanes, until the first verdict; 4 messages", "protocol",
          "MESSAGES=4 BUCKETS=2 NEEDLESS COPIES=0 UNTIL_END DURABLE"),
    _kept("lanes-3", "lanes, fences and ticks, one delayed copy; 3 messages", "protocol",
          "MESSAGES=3 BUCKETS=2 NEEDLESS", MODEL),
    _kept("fails", "messages fail, the source touches the tree; 2 messages", "protocol",
          f"{TWO} FAILS TOUCHES"),
    _kept("again", "one message is processed twice, by any bolt; 2 messages", "protocol",
          f"{TWO} REDELIVERIES=1", MODEL),
    _kept("failover", "the shard goes back to an older state; 2 messages", "protocol",
          f"{TWO} FAILOVER"),
    _kept("driver", "a driver dies and runs its batch again; 3 messages", "protocol",
          "MESSAGES=3 BUCKETS=2 DRIVER COPIES=0", MODEL),
    _kept("driver-copy", "the same, with one delayed copy; 3 messages", "protocol",
          "MESSAGES=3 BUCKETS=2 DRIVER", MODEL),
    _kept("driver-plan", "its batch has other content; 3 messages", "protocol",
          "MESSAGES=3 BUCKETS=2 DRIVER OTHER_PLAN COPIES=0"),
    _kept("driver-plan-copy", "the same, with one delayed copy; 3 messages", "protocol",
          "MESSAGES=3 BUCKETS=2 DRIVER OTHER_PLAN", MODEL),
    _kept("deadline", "rows and touches move the tree; 3 buckets, 2 messages", "protocol",
          "MESSAGES=2 BUCKETS=3 REFRESH TOUCHES LIFE=4"),
    _kept("ends", "each tracked tree ends; 2 messages", "protocol", f"{TWO} ENDS"),
    _kept("ends-deadline", "each tracked tree ends, however often it is touched; 2 messages",
          "protocol", f"{TWO} ENDS REFRESH TOUCHES LIFE=3 COPIES=0"),
    _kept("grow", "a reshard from one shard to two, two trees", "reshard", "FROM=1 TO=2"),
    _kept("shrink", "a reshard from two shards to one, two trees", "reshard", "FROM=2 TO=1"),
    _kept("lanes-3-3", "3 buckets, one delayed copy; 3 messages", "protocol",
          "MESSAGES=3 BUCKETS=3 NEEDLESS", NIGHTLY),
    _kept("lanes-4-ticks", "lanes with a horizon, until the first verdict; 4 messages", "protocol",
          "MESSAGES=4 BUCKETS=2 NEEDLESS COPIES=0 UNTIL_END", NIGHTLY),
    _kept("fails-again", "messages fail, one is processed twice, touches; 3 buckets", "protocol",
          "MESSAGES=2 BUCKETS=3 FAILS TOUCHES REDELIVERIES=1", NIGHTLY),
)  # fmt: skip
"""Runs in which all rules are kept: no violation may be found."""


def _broken(rule: str, title: str, file: str, switches: str, by_client: bool = False) -> Run:
    return Run(
        rule.lower().replace("_", "-"), title, f"{file}.pml", switches, FULL, rule, by_client
    )


PLAN = "MESSAGES=3 BUCKETS=2 DRIVER OTHER_PLAN COPIES=0"
DEADLINE = f"{TWO} REFRESH TOUCHES LIFE=3"
BROKEN = (
    _broken("SPLIT_ROWS", "a row is sent as an ack and an announcement", "rows", "MESSAGES=3",
            True),
    _broken("SHARED_IDS", "a joined message has one id for all its causes", "rows", "MESSAGES=3",
            True),
    _broken("LATE_FIRSTS", "first messages are announced after the TRACK", "rows", "MESSAGES=3",
            True),
    _broken("NEW_IDS", "a message that is processed again causes messages under new ids", "rows",
            "MESSAGES=3", True),
    _broken("COUNTED_IDS", "ids are counted instead of drawn: 1, 2, 3", "rows",
            "MESSAGES=3 FIELD=3 COLLISIONS", True),
    _broken("EARLY_FAIL_FORGOTTEN", "a FAIL before its TRACK is forgotten", "rows", "MESSAGES=3"),
    _broken("ZERO_BEATS_FAIL", "a failed tree whose checksum is zero is acked", "protocol",
            f"{TWO} FAILS"),
    _broken("OR", "deltas are combined by OR", "protocol", f"{TWO} NEEDLESS"),
    _broken("EARLY_ROWS_DROPPED", "rows before their TRACK are dropped", "protocol",
            f"{TWO} NEEDLESS"),
    _broken("NO_FENCE", "a batch that is sent again is applied again", "protocol", TWO),
    _broken("FENCE_EARLY", "fences are dropped a tick early", "protocol", TWO),
    _broken("RETRY_PAST_HORIZON", "a client sends a batch again after N-1 ticks", "protocol", TWO,
            True),
    _broken("NO_DIGEST", "a batch that returns with other content is a repeat", "protocol", PLAN),
    _broken("DRIVER_NOT_DURABLE", "the fence of a driver is in the buckets", "protocol",
            f"{TWO} DRIVER"),
    _broken("RERUN_NEW_NUMBER", "a driver runs its batch again under a new number", "protocol",
            f"{TWO} DRIVER", True),
    _broken("EMIT_BEFORE_APPLY", "a driver emits before its batch is applied", "protocol", PLAN,
            True),
    _broken("SILENT_CONFLICT", "a second TRACK of a pending tree has no verdict", "protocol",
            f"{TWO} TOUCHES"),
    _broken("MOVE_KEEPS_COPY", "a record that moves stays in its old bucket, too", "protocol",
            f"{TWO} TOUCHES"),
    _broken("TOUCH_IGNORED", "a TOUCH does not restart the clock", "protocol", f"{TWO} TOUCHES"),
    _broken("EXPIRY_EARLY", "records expire a tick early", "protocol", TWO),
    _broken("NO_DRAIN", "the oldest bucket is dropped without verdicts", "protocol", TWO),
    _broken("TICK_BEFORE_DRAIN", "a tick does not wait for the drain", "protocol", TWO),
    _broken("DEADLINE_IGNORED", "a deadline ends no tree", "protocol", DEADLINE),
    _broken("DEADLINE_FROM_LAST_ROW", "a deadline counts from the last row", "protocol", DEADLINE),
    _broken("LANES_NOT_RAISED", "a reshard leaves the durable lanes of new shards at 0", "reshard",
            "FROM=1 TO=2"),
    _broken("NOT_CLOSED", "a reshard does not close the shards", "reshard", "FROM=2 TO=1"),
    _broken("NOT_EMPTY", "a reshard does not wait until the shards are empty", "reshard",
            "FROM=1 TO=2"),
    _broken("VERDICTS_LEFT", "a reshard drops a shard whose verdicts were not taken", "reshard",
            "FROM=2 TO=1"),
    _broken("REFUSAL_KEEPS_FENCE", "a batch that a closed shard refuses uses up its number",
            "reshard", "FROM=1 TO=2"),
    _broken("EARLY_ROWS_KEPT", "a closed shard keeps rows of unknown trees", "reshard",
            "FROM=1 TO=2"),
    Run("never-ends", "a tree that is touched for ever never ends", "protocol.pml",
        f"{DEADLINE} ENDS COPIES=0", FULL, "DEADLINE_IGNORED"),
)  # fmt: skip
"""Runs in which one rule is broken: Spin must find each."""


def runs(tier: str) -> list[Run]:
    """Return the runs of a tier, and of the tiers before it."""
    tiers = (FULL, MODEL, NIGHTLY)
    return [run for run in (*KEPT, *BROKEN) if tiers.index(run.tier) <= tiers.index(tier)]
