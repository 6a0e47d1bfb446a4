"""What answers look like on the wire: OpenAI's objects as msgspec structs.

A field typed `X | UnsetType` is left out until it is set; one typed `X | None` is sent as null,
because clients look for it there.
"""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from octavo.base.output import Logprob, Structured
from octavo.base.sampling_params import LogprobsMode
from octavo.core.miss import Miss

# By position of the prompt: token id -> logprob; null where there is none.
PromptLogprobs = list[dict[int, Logprob] | None]


class CacheReport(Struct, frozen=True, kw_only=True):
    """What the cache held of a prompt. All but the first three fields are null where it held all
    but the last token, which is always computed."""

    request_id: str
    prompt_tokens: int
    hit_tokens: int
    reason: Miss | None
    missed_at: int | None = None  # index of the first token that was not found
    segment: str | None = None  # "system", "messages[3]" or "prompt": where that token lies
    before: str | None = None  # the prompt's text at that place
    after: str | None = None
    advice: str | None = None


class CachedTokens(Struct, frozen=True):
    cached_tokens: int
    cache: CacheReport | UnsetType = UNSET


class CompletionTokens(Struct, frozen=True):
    """Predictions are drafts that were verified. The rejected ones are not among
    `completion_tokens`; those of the reasoning are, whether it was shown or not."""

    reasoning_tokens: int
    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class Usage(Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens
    completion_tokens_details: CompletionTokens


class TopLogprob(Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]
    log_mass: float | UnsetType = UNSET  # of the distribution, left by its cuts; in processed mode


class ChatLogprobs(Struct, frozen=True):
    content: list[TokenLogprob]


class FunctionCall(Struct, frozen=True):
    """Of a stream's chunks, the first of a call has the name, the others more of the arguments."""

    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET  # the text of a JSON object


class ToolCall(Struct, frozen=True, kw_only=True):
    index: int | UnsetType = UNSET  # in chunks only
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET
    function: FunctionCall


class ChatMessage(Struct, frozen=True, kw_only=True):
    """`reasoning` is sent by both of the names that clients know."""

    role: str = "assistant"
    content: str | None  # null where there are only calls or reasoning
    refusal: str | None = None
    tool_calls: list[ToolCall] | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET


class ChatChoice(Struct, frozen=True, kw_only=True):
    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: str
    stop_reason: int | str | None
    structured: Structured | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletion(Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    system_fingerprint: str
    seed: int
    logprobs_mode: LogprobsMode | UnsetType = UNSET
    choices: list[ChatChoice]
    usage: Usage
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class ChatDelta(Struct, frozen=True):
    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET


class ChatChunkChoice(Struct, frozen=True, kw_only=True):
    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | UnsetType = UNSET
    structured: Structured | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET


class ChatChunk(Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    system_fingerprint: str
    seed: int | UnsetType = UNSET  # in the first chunk, as are the next
    logprobs_mode: LogprobsMode | UnsetType = UNSET
    choices: list[ChatChunkChoice]
    usage: Usage | UnsetType | None = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class CompletionLogprobs(Struct, frozen=True):
    """Parallel lists, one entry a token. `text_offset`: characters of text before the token. Of an
    echo's first token, which follows nothing, there are no logprobs."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]
    log_mass: list[float | None] | UnsetType = UNSET  # in processed mode; None for an echo's


class CompletionChoice(Struct, frozen=True, kw_only=True):
    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | UnsetType | None = UNSET
    structured: Structured | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class Completion(Struct, frozen=True, kw_only=True):
    """A whole answer, and a chunk of one."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    system_fingerprint: str
    seed: int | UnsetType = UNSET  # of a stream in the first chunk, as is the next
    logprobs_mode: LogprobsMode | UnsetType = UNSET
    choices: list[CompletionChoice]
    usage: Usage | UnsetType | None = UNSET


class ModelCard(Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "octavo"
    root: str
    max_model_len: int


class ModelList(Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[ModelCard]


class Tokenized(Struct, frozen=True, kw_only=True):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class Detokenized(Struct, frozen=True):
    prompt: str


class Health(Struct, frozen=True):
    status: str
