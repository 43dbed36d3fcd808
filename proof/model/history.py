"""A trail as a history that ``acker-redis simulate --history FILE`` replays.

The format is described in ``proof/simulate/replay.py``.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from proof.model.runs import Run
from proof.model.trail import Event, members, sentence

Link = tuple[int, int]
REPLIES = ("", "applied", "repeated", "changed")


def history(events: Iterable[Event], run: Run) -> dict[str, Any]:
    """Return the history of a trail, as it is written to a file."""
    writer = _Writer(run)
    for event in events:
        writer.add(event)
    if writer.last == "tick":
        # The model ends at the tick; the verdicts of that tick are those of its drain.
        writer.add(Event("drain", {}))
        del writer.steps[-1]["verdicts"]
    return {
        "history": 1,
        "title": run.title,
        "buckets": run.buckets,
        "life": run.life,
        "whole_rows": not run.by_client,
        "truthful": not run.broken or run.by_client,
        "messages": len(writer.causes),
        "ids": writer.ids(),
        "steps": writer.steps,
    }


@dataclass
class _Writer:
    """Reads the events in order; messages count from 1, and 0 is the source."""

    run: Run
    causes: dict[int, list[int]] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)
    failed: set[int] = field(default_factory=set)
    sent: int = 0
    last: str = ""
    """Name of the event before."""
    open: dict[str, Any] | None = None
    """The step to which the verdicts and the reply that follow belong."""

    def add(self, event: Event) -> None:
        """Add the steps of the next event."""
        self._add(event)
        if event.name != "emit":
            self.last = event.name

    def ids(self) -> list[list[int]]:
        """Return the ids of links that are not drawn, with the message and its cause."""
        if self.run.broken != "COUNTED_IDS":
            return []
        links = [link for m in self.causes for link in self._own(m)]
        return [[*link, number] for number, link in enumerate(links, 1)]

    def _add(self, event: Event) -> None:
        match event.name:
            case "message":
                self.causes[event["m"] + 1] = members(event["causes"]) or [0]
            case "emit":
                # A driver emits if its batch was not refused; a bolt before it sends its batch.
                replied = self.last == "applied"
                self._step(event, "emit", messages=members(event["exists"]), if_applied=replied)
            case "refuse" | "spoil":
                self.failed.add(event["m"] + 1)
                self._step(event, "fail", messages=[event["m"] + 1])
            case "stray":
                # Messages under other ids, which no row announces.
                children = self._children(event["m"] + 1)
                self._step(
                    event, "emit", messages=[100 + child for child in children], if_applied=False
                )
            case "verdict":
                if self.open:
                    self.open.setdefault("verdicts", []).append(event.reason)
            case "applied":
                if self.open:
                    self.open["reply"] = REPLIES[event["reply"]]
            case "vanish":
                # In the model a record may vanish at any time; here it expires.
                for _ in range(self.run.buckets):
                    self._step(event, "tick")
                    self._step(event, "drain")
            case "tick" | "snapshot" | "failover":
                self._step(event, event.name)
            case "drain":
                self.open = self._step(event, "drain", verdicts=[])
            case "call" | "arrive":
                self.open = self._batch(event)
            case "touch":
                self.open = self._apply(event, flags=["TOUCH"])
            case "track" | "announce" | "row" | "ack" | "anchor" | "fail" | "fail_row":
                self.open = self._row(event)
            case _:
                self._step(event, "note")

    def _step(self, event: Event, do: str, **more: Any) -> dict[str, Any]:
        self.open = None
        step = {"say": sentence(event), "do": do, **more}
        self.steps.append(step)
        return step

    def _batch(self, event: Event) -> dict[str, Any]:
        """Return a batch of a lane: a TRACK, or the rows of some messages."""
        lane = event["lane"]
        name = "source" if lane == 0 else f"bolt{lane}"
        name = ("@" if lane in self.run.durable else "") + name
        if lane == 0:
            track: dict[str, Any] = {
                "flags": ["TRACK"],
                "made": self._children(0),
                "links": self._to(0),
            }
            return self._apply(event, name, event["number"], **track)
        done = members(event["rows"])
        made = [] if event["plan"] else [child for m in done for child in self._children(m)]
        links = [link for m in done for link in self._own(m)]
        if not event["plan"]:
            links += [link for m in done for link in self._to(m)]
        flags = ["FAIL"] if self.failed & set(done) else []
        return self._apply(
            event, name, event["number"], flags=flags, done=done, made=made, links=links
        )

    def _row(self, event: Event) -> dict[str, Any]:
        """Return a row as the network of ``rows.pml`` brings it."""
        m = event["m"] + 1
        own, children, to = self._own(m), self._children(m), self._to(m)
        firsts, links = self._children(0), self._to(0)
        late = "LATE_FIRSTS" in self.run.broken
        match event.name:
            case "track":
                end = 1 if late else len(firsts)
                return self._apply(event, flags=["TRACK"], made=firsts[:end], links=links[:end])
            case "announce":
                return self._apply(event, made=firsts[1:], links=links[1:])
            case "ack":
                return self._apply(event, done=[m], links=own)
            case "anchor":
                return self._apply(event, made=children, links=to)
            case "fail":
                return self._apply(event, flags=["FAIL"])
        flags = ["FAIL"] if event.name == "fail_row" else []
        return self._apply(event, flags=flags, done=[m], made=children, links=own + to)

    def _apply(
        self,
        event: Event,
        lane: str = "network",
        number: int = 0,
        *,
        flags: Iterable[str] = (),
        done: Iterable[int] = (),
        made: Iterable[int] = (),
        links: Iterable[Link] = (),
    ) -> dict[str, Any]:
        self.sent += 1
        step = {"lane": lane, "number": number or self.sent, "flags": list(flags)}
        step |= {"done": list(done), "made": list(made), "links": [list(link) for link in links]}
        # The network of rows.pml has no batches: each row has its own number.
        return self._step(event, "apply", **step, reply="applied", verdicts=[])

    def _children(self, cause: int) -> list[int]:
        return [m for m, causes in self.causes.items() if cause in causes]

    def _own(self, m: int) -> list[Link]:
        """Return the links whose edge ids make the id of a message."""
        return sorted({self._link(m, cause) for cause in self.causes.get(m, ())})

    def _to(self, cause: int) -> list[Link]:
        """Return the links by which a message announces its children."""
        return [self._link(child, cause) for child in self._children(cause)]

    def _link(self, m: int, cause: int) -> Link:
        shared = "SHARED_IDS" in self.run.broken
        return (m, min(self.causes[m]) if shared else cause)
