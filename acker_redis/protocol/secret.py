"""A text that must not be shown."""


class Secret:
    """A text that no repr, log or JSON shows; :meth:`reveal` returns it.

    Not a dataclass, or ``dataclasses.asdict`` would take it apart.

    >>> Secret("0123"), f"{Secret('0123')}", Secret("0123") == Secret("0123")
    (Secret(..), 'Secret(..)', True)
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(..)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)
