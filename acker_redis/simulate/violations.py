"""What the oracle raises."""


class Violation(Exception):  # noqa: N818 - what it is called in the reports
    """A promise that was not kept. ``anchor`` is the tree concerned, 0 if it is none."""

    def __init__(self, kind: str, words: str, anchor: int = 0) -> None:
        super().__init__(f"{kind}: {words}")
        self.kind = kind
        self.anchor = anchor


FALSE_ACK = "false ack"
