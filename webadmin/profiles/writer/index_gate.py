"""Asks the index only while it answers: a database that is away costs one flush its patience, not all of them."""

from __future__ import annotations

AWAY_SECONDS = 1.0


class IndexGate:
    """After a failure nobody asks for a moment; then one flush tries, and if it succeeds all ask again."""

    def __init__(self) -> None:
        self.is_away = False
        self._try_again_at = 0.0

    def may_ask(self, now: float) -> bool:
        """Say whether to try the index; who is told to is the only one until the pause is over again."""
        if not self.is_away:
            return True
        if now < self._try_again_at:
            return False
        self._try_again_at = now + AWAY_SECONDS
        return True

    def succeeded(self) -> None:
        """The index answered."""
        self.is_away = False

    def failed(self, now: float) -> None:
        """The index did not answer."""
        self.is_away, self._try_again_at = True, now + AWAY_SECONDS
