"""How many drafts pay: measured, not modelled. Knows steps by their numbers of rows and their time;
nothing of sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from octavo.base.plan import Sampled, StepPlan

MEMORY = 0.95  # of what a limit has earned, that stays after each step
LONGEST_GAP = 32  # steps with others that count so, at most
FIRST_STEPS = 3  # with each limit, before they are compared
RETRY_STEPS = 16  # with the best limit, before another one is tried; twice as many where it loses
MOST_RETRY_STEPS = 256


@dataclass(slots=True)
class _Earned:
    """What steps with one limit have brought, the latest counting most."""

    tokens: float = 0.0
    seconds: float = 0.0
    steps: int = 0

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0

    def add(self, tokens: int, seconds: float, gap: int) -> None:
        """`gap`: steps with other limits since the last one."""
        memory = MEMORY ** (1 + min(gap, LONGEST_GAP))
        self.tokens = memory * self.tokens + tokens
        self.seconds = memory * self.seconds + seconds
        self.steps += 1


class _Choice:
    """Between limits, for steps of about one number of rows."""

    def __init__(self, limits: tuple[int, ...]) -> None:
        self._earned = {limit: _Earned() for limit in limits}
        self._wait = dict.fromkeys(limits, RETRY_STEPS)  # steps until a loser is tried again
        self._since = dict.fromkeys(limits, 0)

    def limit(self) -> int:
        for limit, earned in self._earned.items():
            if earned.steps < FIRST_STEPS:
                return limit
        best = self._best()
        due = [n for n in self._earned if n != best and self._since[n] >= self._wait[n]]
        return max(due, key=lambda n: self._since[n] - self._wait[n]) if due else best

    def learn(self, limit: int, tokens: int, seconds: float) -> None:
        self._earned[limit].add(tokens, seconds, self._since[limit])
        for other in self._since:
            self._since[other] += 1
        self._since[limit] = 0
        if self._best() == limit:
            self._wait[limit] = RETRY_STEPS
        else:
            self._wait[limit] = min(2 * self._wait[limit], MOST_RETRY_STEPS)

    def _best(self) -> int:
        return max(self._earned, key=lambda limit: self._earned[limit].rate)


class Drafting:
    """Chooses how many drafts a row may have, by the tokens a second that steps with about as many
    rows have brought: all, half of them, or none. Losers are tried again, the more rarely the
    longer they lose. Counts what became of drafts.

    Args:
        most: drafts a row, at most; with 0 there is nothing to choose.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.rows = 0  # with drafts
        self.tokens = 0  # drafts
        self.accepted = [0] * most  # by position
        self._limits = tuple(dict.fromkeys((most, -(-most // 2), 0)))
        self._choices: dict[int, _Choice] = {}  # by the number of rows, in bits

    def limit(self, rows: int) -> int:
        """For a step in which so many sequences go on."""
        return self._choice(rows).limit() if self.most else 0

    def learn(self, plan: StepPlan, drawn: Sequence[Sampled], seconds: float) -> None:
        """What a step has brought to sequences that are still here. Only those are compared in
        which all rows generate, and all for these."""
        for one in drawn:
            self._count(one)
        generate = all(row.length == 1 and row.draws for row in plan.rows)
        if drawn and generate and len(drawn) == len(plan.rows):
            tokens = sum(len(one.token_ids) for one in drawn)
            self._choice(len(drawn)).learn(plan.limit, tokens, seconds)

    def _count(self, drawn: Sampled) -> None:
        self.rows += drawn.drafts > 0
        self.tokens += drawn.drafts
        for position in range(drawn.accepted):
            self.accepted[position] += 1

    def _choice(self, rows: int) -> _Choice:
        return self._choices.setdefault(rows.bit_length(), _Choice(self._limits))
