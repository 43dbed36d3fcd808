"""The events of a trail: what the model prints, as values and as English sentences.

A line of the model is ``EV name key=value ..``. Messages count from 0 in the model, and from 1
here, as in the simulator. Lane 0 is the source.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

REPLIES = ("", "is applied", "is a repeat", "is refused, because its content has changed")
"""What the shard does with a batch, by the number that the model prints."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the model."""

    name: str
    values: dict[str, str]

    def __getitem__(self, key: str) -> int:
        """Return a number, 0 if the line does not have it."""
        return int(self.values.get(key, "0"))

    @property
    def reason(self) -> str:
        """The reason of a verdict."""
        return self.values["reason"]


def parse(output: str) -> Iterator[Event]:
    """Yield the events in the output of ``spin -t``, or of a random simulation."""
    for line in output.splitlines():
        words = line.split()
        if words[:1] == ["EV"]:
            yield Event(words[1], dict(word.split("=") for word in words[2:]))


def members(bits: int) -> list[int]:
    """Return the messages of a bitmap, from 1."""
    return [k + 1 for k in range(bits.bit_length()) if bits >> k & 1]


def sentences(events: Iterable[Event]) -> list[str]:
    """Return a sentence for each event."""
    return [sentence(event) for event in events if event.name != "emit"]


def sentence(event: Event) -> str:
    """Return what an event means."""
    said = " ".join(_SENTENCES.get(event.name, event.name).format(**_words(event)).split())
    return said[:1].upper() + said[1:]


def _words(event: Event) -> dict[str, str]:
    """Return the words that a sentence may contain."""
    values, lane = event.values, event["lane"]
    what = "its TRACK" if lane == 0 else f"the rows of {_messages(event['rows'])}"
    causes = event["causes"]
    return {
        "m": str(event["m"] + 1),
        "cause": f"caused by {_messages(causes)}" if causes else "a first message",
        "exist": (_messages(event["exists"]) or "no message") + " now",
        "lane": "the source" if lane == 0 else f"bolt {lane}",
        "bolt": f"bolt {values['bolt']}" if "bolt" in values else "a bolt",
        "again": "again" if event["again"] else "",
        "number": values.get("number", ""),
        "what": what + (", which now announce nothing" if event["plan"] else ""),
        "reply": REPLIES[event["reply"]],
        "arrives": "arrives" if event["reply"] else "is lost",
        "reason": values.get("reason", ""),
        "trees": ("tree ", "trees ")[event["trees"] == 3]
        + " and ".join(str(m - 1) for m in members(event["trees"])),
        "tree": values.get("tree", ""),
        "shard": values.get("shard", ""),
        "outcome": values.get("outcome", "").replace("_", " "),
    }


def invariant(assertion: str) -> str:
    """Return the name of the invariant that an assertion of the model checks."""
    return next((name for text, name in INVARIANTS.items() if text in assertion), assertion)


INVARIANTS = {
    "acceptance cycle": "each tracked tree ends",
    "true_applied": "a batch is applied once",
    "true_twice": "no needless nack",
    "true_idle": "a tree lives N ticks, and no longer than its deadline",
    "n_tracked": "the counters add up",
    "verdicts[0]": "one verdict for each tree",
    "home[0]": "no record in two buckets",
    "true_done": "no false ack",
    "true_failed": "no false ack",
    "true_track": "no false ack",
    "early)": "no false ack",
    "tracks[0]<2": "a batch is applied once",
    "replied": "the driver knows which trees exist",
    "waiting[0]": "a reshard loses no verdict",
    "early[0]": "no record on two shards, or where no client looks for it",
}
"""A part of each assertion, and its invariant; the first that matches counts."""


def _messages(bits: int) -> str:
    """Return the messages of a bitmap as words."""
    found = members(bits)
    return (
        ("message " if len(found) == 1 else "messages ") + " and ".join(map(str, found))
        if (found)
        else ""
    )


_SENTENCES = {
    "message": "Message {m} is {cause}.",
    "emit": "The tree has {exist}.",
    "process": "{bolt} processes message {m}{again}, and emits what follows from it.",
    "refuse": "A bolt fails message {m}.",
    "spoil": "A bolt processes message {m}, emits what follows from it, and fails it.",
    "stray": "A bolt emits what follows from message {m} under ids of this run, and dies.",
    "track": "The TRACK arrives.",
    "announce": "A second announcement of first messages arrives.",
    "row": "The row of message {m} arrives.",
    "ack": "The ack of message {m} arrives alone.",
    "anchor": "The announcement of what message {m} caused arrives alone.",
    "fail": "The FAIL of message {m} arrives.",
    "fail_row": "The row of message {m} arrives, with its FAIL.",
    "vanish": "The record expires, or was never kept.",
    "batch": "{lane} begins batch {number} with {what}.",
    "call": "{lane} sends batch {number} with {what}; the reply {arrives}.",
    "delay": "{lane} sends batch {number} with {what}; the network holds a copy back.",
    "arrive": "The copy of batch {number} of {lane} arrives, with {what}.",
    "lose": "The network loses the copy of a batch of {lane}.",
    "give_up": "{lane} gives batch {number} up.",
    "rerun": "{lane} dies, and runs its batch again.",
    "touch": "The source touches the tree.",
    "applied": "The batch {reply}.",
    "verdict": "The shard writes the verdict {reason}.",
    "tick": "The rotator ticks.",
    "drain": "The rotator drains the records that expire.",
    "snapshot": "A replica stops replicating.",
    "track_part": "The driver tracks {trees} on shard {shard}: {outcome}.",
    "send_row": "The bolt sends the row of tree {tree} to shard {shard}.",
    "expire_tree": "Tree {tree} expires on shard {shard}.",
    "expire_early": "An early row of tree {tree} expires on shard {shard}.",
    "take": "The source takes its verdicts from shard {shard}.",
    "close": "The reshard closes shard {shard}.",
    "create": "The reshard creates shard {shard}.",
    "raise": "The reshard raises the durable lanes on all shards.",
    "set": "The reshard sets the number of shards on shard {shard}.",
    "drop": "The reshard drops shard {shard}.",
    "open": "The reshard opens shard {shard}.",
    "failover": "The replica takes over: all later writes are lost.",
}
