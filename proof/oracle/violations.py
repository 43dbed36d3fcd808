"""The exception that the oracle raises."""


class Violation(Exception):  # noqa: N818 - its name in the reports
    """A broken promise. ``anchor``: the tree concerned, 0 if there is none."""

    def __init__(self, kind: str, words: str, anchor: int = 0) -> None:
        super().__init__(f"{kind}: {words}")
        self.kind = kind
        self.anchor = anchor


FALSE_ACK = "false ack"
