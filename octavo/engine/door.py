"""The door: what a client asked is checked here, once, and made a whole `Request`."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable

import msgspec

from octavo.base.errors import RequestError
from octavo.base.request import Request
from octavo.base.sampling_params import SamplingParams
from octavo.engine.info import EngineInfo

MAX_SALT = 128  # characters
DRAWN_SEEDS = 2**53  # seeds below this: JSON numbers that every client reads exactly
MAX_BEAM_STOPS = 4  # each makes as many more continuations be looked at as there are beams


class Door:
    """Checks requests against one engine's limits and fills in what they leave open."""

    def __init__(self, info: EngineInfo, seed: int | None = None) -> None:
        self._info = info
        self._seeds = random.Random(seed)

    def draw_seed(self) -> int:
        """For a request that brings none."""
        return self._seeds.randrange(DRAWN_SEEDS)

    def request(
        self,
        prompt_token_ids: list[int],
        params: SamplingParams,
        *,
        request_id: str | None = None,
        priority: int = 0,
        cache_salt: str = "",
        owner: str = "",
        fork_of: str = "",
    ) -> Request:
        """A request the engine can take as it is.

        Raises:
            RequestError: the prompt is empty, too long, or names a token the model lacks, or
                more beams are wanted than can run together, or more logprobs than are told, or
                a logits processor that is not loaded, or a structure where nothing could end it,
                or the salt is too long.
        """
        self._check_prompt(prompt_token_ids, params)
        self._check_ids(params)
        self._check_logprobs(params)
        self._check_structure(params)
        whole = self._whole(params, len(prompt_token_ids))
        if params.use_beam_search:
            self._check_beams(whole, len(prompt_token_ids))
        if not isinstance(cache_salt, str) or len(cache_salt) > MAX_SALT:
            raise RequestError(
                f"cache_salt must be a text of at most {MAX_SALT} characters", "cache_salt"
            )
        return Request(
            request_id=request_id or uuid.uuid4().hex,
            prompt_token_ids=prompt_token_ids,
            params=whole,
            eos_token_ids=() if params.ignore_eos else self._info.eos_token_ids,
            priority=priority,
            cache_salt=cache_salt,
            owner=owner,
            fork_of=fork_of,
        )

    def _whole(self, params: SamplingParams, prompt_len: int) -> SamplingParams:
        """Draw a missing seed; end the output where the context ends; settle what logprobs mean."""
        room = self._info.max_model_len - prompt_len
        wanted = room if params.max_tokens is None else min(params.max_tokens, room)
        seed = self.draw_seed() if params.seed is None else params.seed
        return msgspec.structs.replace(
            params,
            max_tokens=wanted,
            min_tokens=min(params.min_tokens, wanted),
            seed=seed,
            logprobs_mode=params.logprobs_mode or self._info.logprobs_mode,
        )

    def _check_beams(self, params: SamplingParams, prompt_len: int) -> None:
        """All beams must have room at once, as each waits for the others."""
        if params.n > self._info.max_num_seqs:
            raise RequestError(
                f"n must be at most {self._info.max_num_seqs} in a beam search, the sequences that "
                f"run at once; got {params.n}",
                "n",
            )
        if len(params.stop_ids) > MAX_BEAM_STOPS:
            raise RequestError(
                f"stop_token_ids may be at most {MAX_BEAM_STOPS} in a beam search, got "
                f"{len(params.stop_ids)}",
                "stop_token_ids",
            )
        assert params.max_tokens is not None
        final = prompt_len + params.max_tokens
        # Beams that were preempted come back one by one, and share what is found, if anything is.
        shared = prompt_len if self._info.prefix_caching else 0
        if not self._info.layout.fits_together(params.n, final, shared):
            raise RequestError(
                f"{params.n} beams of up to {final} tokens do not fit in the KV cache together; "
                "ask for fewer beams (n) or a smaller max_tokens",
                "n",
            )

    def _check_prompt(self, prompt: list[int], params: SamplingParams) -> None:
        context = self._info.max_model_len
        longest = context if params.max_tokens == 0 else context - 1
        if not prompt:
            raise RequestError("prompt must have at least 1 token", "prompt")
        if len(prompt) > longest:
            raise RequestError(
                f"prompt has {len(prompt)} tokens; at most {longest} fit, as the model's context "
                f"is {context} tokens" + (" and one is generated" if longest < context else ""),
                "prompt",
            )
        self.check_vocabulary("prompt", prompt)
        if params.prompt_logprob_start > len(prompt):
            raise RequestError(
                f"prompt_logprob_start is {params.prompt_logprob_start}, but the prompt has "
                f"{len(prompt)} tokens",
                "prompt_logprob_start",
            )

    def _check_ids(self, params: SamplingParams) -> None:
        if params.bad_words and params.bad_word_ids is None:
            raise RequestError("bad_words need a tokenizer, or bad_word_ids", "bad_words")
        for field, ids in params.token_ids_named().items():
            self.check_vocabulary(field, ids)
        for name in params.logits_processors or ():
            if name not in self._info.logits_processors:
                loaded = ", ".join(self._info.logits_processors) or "none"
                raise RequestError(
                    f"logits processor {name!r} is not loaded; there are: {loaded}",
                    "logits_processors",
                )

    def _check_logprobs(self, params: SamplingParams) -> None:
        most = self._info.max_logprobs
        for field in ("logprobs", "prompt_logprobs"):
            wanted = getattr(params, field)
            if wanted is not None and most != -1 and not 0 <= wanted <= most:
                raise RequestError(f"{field} must be between 0 and {most}, got {wanted}", field)

    def _check_structure(self, params: SamplingParams) -> None:
        if (params.structured_outputs or params.thinking) and not self._info.structured_outputs:
            raise RequestError(
                "structured_outputs need a model with a tokenizer and an end-of-sequence token",
                "structured_outputs",
            )

    def check_vocabulary(self, field: str, ids: Iterable[int]) -> None:
        """Raises:
        RequestError: one of `ids` is no token id of the model.
        """
        for token in ids:
            if isinstance(token, bool) or not isinstance(token, int):
                raise RequestError(f"{field}: token ids must be integers, got {token!r}", field)
            if not 0 <= token < self._info.vocab_size:
                raise RequestError(
                    f"{field}: token id {token} is outside the vocabulary (0 to "
                    f"{self._info.vocab_size - 1})",
                    field,
                )
