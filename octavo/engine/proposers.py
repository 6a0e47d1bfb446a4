"""Who guesses tokens, from settings."""

from __future__ import annotations

from octavo.base.settings import SpeculationSettings
from octavo.speculative.ngram import NgramProposer
from octavo.speculative.proposer import Proposer
from octavo.speculative.suffix import SuffixProposer

PROPOSERS = {"ngram": NgramProposer, "suffix": SuffixProposer}


def make_proposer(settings: SpeculationSettings) -> Proposer | None:
    if settings.speculation == "off":
        return None
    return PROPOSERS[settings.speculation]()
