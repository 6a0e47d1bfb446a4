"""What an engine says of itself once it is ready."""

from __future__ import annotations

from typing import Any

import msgspec

from octavo.base.kv import KVLayout
from octavo.base.sampling_params import LogprobsMode
from octavo.base.settings import MAX_LOGPROBS


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    model: str  # short name
    family: str
    dtype: str  # of weights in no block format
    kv_dtype: str  # of the KV cache
    weight_format: str  # "q4_1", "bfloat16", or several
    runner: str  # what computes: "native avx2, 2 threads", "torch cuda"
    vocab_size: int  # rows of the embedding; every token id must be below it
    max_num_seqs: int  # sequences running at once, at most
    max_model_len: int  # prompt and output tokens of one sequence, at most
    eos_token_ids: tuple[int, ...]
    layout: KVLayout
    generation_defaults: dict[str, Any]  # the model's own sampling defaults
    table: str  # the memory plan, drawn
    prefix_caching: bool = True
    max_logprobs: int = MAX_LOGPROBS  # that a request may ask for; -1: any number
    logprobs_mode: LogprobsMode = "raw"  # where a request does not say
    logits_processors: tuple[str, ...] = ()  # names that a request may use
    structured_outputs: bool = False  # answers may be asked to have a structure
    epoch: str = ""  # of the weights that were loaded: a digest of their content
    digest: str = ""  # of all that logits depend on: model, weights, formats, kernels
