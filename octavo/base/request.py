"""What a client asked for, after the door has checked it."""

from __future__ import annotations

import msgspec

from octavo.base.sampling_params import SamplingParams


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One prompt and how to continue it. Made by `engine.door.Door`, which fills in what is open.

    `params.seed` and `params.max_tokens` are never None here: a missing seed is drawn at the
    door, so that a restarted request keeps its random stream.
    """

    request_id: str
    prompt_token_ids: list[int]
    params: SamplingParams
    eos_token_ids: tuple[int, ...] = ()  # empty with ignore_eos
    priority: int = 0  # lower runs first, under the priority policy
    cache_salt: str = ""  # KV is shared by equal salts only; without one, within an owner only
    owner: str = ""  # whose it is: misses are explained by an owner's own requests only
    adapter: str = ""  # digest of the adapter that computes it; empty: none
    block_keys: dict[int, bytes] = {}  # block number -> what its KV depends on besides tokens
    fork_of: str = ""  # request that it goes on from: what that one has computed is found whole
