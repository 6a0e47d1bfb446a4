"""What clients may send: names, types and bounds, for the routes and for /openapi.json.

Fields that exist elsewhere but are not served here are refused in `refusals`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr, WrapValidator
from pydantic_core import PydanticCustomError

from octavo.base.repetition import MAX_COUNT, MAX_PATTERN
from octavo.base.sampling_params import (
    MAX_BAD_WORDS,
    MAX_LENGTH_PENALTY,
    MAX_LOGIT_BIAS,
    MAX_LOGITS_PROCESSORS,
    MAX_LOGPROB_TOKEN_IDS,
    MAX_N,
    MAX_STOP_LENGTH,
    MAX_STOP_STRINGS,
    MAX_STOP_TOKEN_IDS,
    SEED_LIMIT,
    LogprobsMode,
)
from octavo.engine.door import MAX_SALT
from octavo.serve.openai.body import Body, said_as
from octavo.serve.openai.shapes import (
    PastCall,
    ResponseFormat,
    SchemaOrText,
    StructuredOutputs,
    ToolChoice,
    Tools,
)

MAX_PROMPTS = 1024  # in one completions request
MAX_ID = 256  # characters
PRIORITY_LIMIT = 2**31
LARGEST = 2**31 - 1  # of a count
MAX_EXTRA_ARGS = 64


def _exact(value: Any, inner: Any) -> Any:
    """A whole number too large for 64 bits is not to become a float."""
    found = inner(value)
    if type(found) is not type(value):
        raise PydanticCustomError("shape", "must fit in 64 bits")
    return found


Bias = Annotated[float, Field(ge=-100, le=100)]
TokenId = Annotated[StrictInt, Field(ge=0)]
StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_LENGTH)]
StopStrings = Annotated[list[StopString], Field(max_length=MAX_STOP_STRINGS)]
Stop = Annotated[
    StopString | StopStrings,
    said_as(f"a string or up to {MAX_STOP_STRINGS} strings, of 1 to {MAX_STOP_LENGTH} characters"),
]
Prompts = Annotated[list[str], Field(min_length=1, max_length=MAX_PROMPTS)]
Prompt = Annotated[
    str
    | Prompts
    | Annotated[list[TokenId], Field(min_length=1)]
    | Annotated[list[list[TokenId]], Field(min_length=1, max_length=MAX_PROMPTS)],
    said_as(f"a string, a list of token ids, or up to {MAX_PROMPTS} of either"),
]
Logprobs = Annotated[int, Field(ge=-1, le=LARGEST)]  # how many are told is the engine's to say
Words = Annotated[list[StopString], Field(max_length=MAX_BAD_WORDS)]
Names = Annotated[list[StopString], Field(max_length=MAX_LOGITS_PROCESSORS)]
Long = Annotated[StrictInt, Field(ge=-(2**63), lt=2**63)]
Scalar = Annotated[StrictBool | Long | StrictFloat | StrictStr, WrapValidator(_exact)]
ExtraArg = Annotated[
    Scalar | list[Scalar], said_as("a string, a number, true, false, or a list of these")
]
ExtraArgs = Annotated[dict[str, ExtraArg], Field(max_length=MAX_EXTRA_ARGS)]
EarlyStopping = Annotated[bool | Literal["never"], said_as('true, false or "never"')]
Index = Annotated[int, Field(ge=0, lt=MAX_PROMPTS * MAX_N)]  # of a choice
Text = Annotated[str | list[TokenId], said_as("a string or a list of token ids")]
Content = Annotated[str | list[dict[str, Any]], said_as("a string or a list of parts")]


class StreamOptions(Body):
    include_usage: bool = False
    continuous_usage_stats: bool = False


class Repetition(Body):
    max_pattern_size: int = Field(ge=1, le=MAX_PATTERN)
    min_pattern_size: int = Field(1, ge=1, le=MAX_PATTERN)
    min_count: int = Field(2, ge=2, le=MAX_COUNT)


class SamplingBody(Body):
    """The fields that all kinds of completion share. None: the model's default; of a fork, that
    of the forked request."""

    model: str | None = None
    n: int | None = Field(None, ge=1, le=MAX_N)
    best_of: int | None = Field(None, ge=1, le=MAX_N)
    use_beam_search: bool | None = None
    length_penalty: float | None = Field(None, ge=-MAX_LENGTH_PENALTY, le=MAX_LENGTH_PENALTY)
    early_stopping: EarlyStopping | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1, le=LARGEST)
    min_p: float | None = Field(None, ge=0, le=1)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    repetition_penalty: float | None = Field(None, gt=0, le=100)
    seed: int | None = Field(None, ge=-SEED_LIMIT, lt=SEED_LIMIT)
    stop: Stop | None = None
    stop_token_ids: list[TokenId] | None = Field(None, max_length=MAX_STOP_TOKEN_IDS)
    ignore_eos: bool | None = None
    max_tokens: int | None = Field(None, ge=0, le=LARGEST)
    min_tokens: int | None = Field(None, ge=0, le=LARGEST)
    repetition_detection: Repetition | None = None
    logit_bias: dict[int, Bias] | None = Field(None, max_length=MAX_LOGIT_BIAS)
    allowed_token_ids: list[TokenId] | None = Field(None, min_length=1)
    bad_words: Words | None = None
    logits_processors: Names | None = None
    extra_args: ExtraArgs | None = None
    vllm_xargs: ExtraArgs | None = None  # another name for these
    logprob_token_ids: list[TokenId] | None = Field(None, max_length=MAX_LOGPROB_TOKEN_IDS)
    logprobs_mode: LogprobsMode | None = None
    prompt_logprobs: Logprobs | None = None
    prompt_logprob_start: int | None = Field(None, ge=0, le=LARGEST)
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_reading_prefix_cache: bool | None = None
    stream_interval: int | None = Field(None, ge=1, le=LARGEST)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    priority: int = Field(0, ge=-PRIORITY_LIMIT, lt=PRIORITY_LIMIT)
    cache_salt: str | None = Field(None, min_length=1, max_length=MAX_SALT)
    return_token_ids: bool | None = None
    cache_explain: bool | None = None
    user: str | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: SchemaOrText | None = None  # older names of these
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    guided_whitespace_pattern: str | None = None


class CompletionBody(SamplingBody):
    prompt: Prompt
    echo: bool | None = None
    logprobs: Logprobs | None = None
    add_special_tokens: bool = True


class ForkBody(SamplingBody):
    """Which tokens are kept, of which choice of which answer, and what follows them."""

    request_id: str = Field(min_length=1, max_length=MAX_ID)
    index: Index = 0
    at_token: int | None = Field(None, ge=1)  # None: all
    text: Text = ""
    logprobs: Logprobs | None = None


class Message(Body):
    """One turn. Whatever else it carries goes to the chat template as it is."""

    role: str = Field(min_length=1, max_length=64)
    content: Content | None = None
    tool_calls: list[PastCall] | None = None


class TemplateBody(Body):
    """How messages become a prompt. A template writes its own special tokens, as a rule."""

    add_generation_prompt: bool | None = None  # None: unless the final message is continued
    continue_final_message: bool = False
    add_special_tokens: bool | None = None  # None: false for messages, true for a prompt
    chat_template_kwargs: dict[str, Any] | None = None
    documents: list[dict[str, Any]] | None = None
    reasoning_effort: str | None = Field(None, max_length=32)
    tools: Tools | None = None
    tool_choice: ToolChoice | None = None  # "none": the template is not told of the tools either


class ChatBody(SamplingBody, TemplateBody):
    messages: list[Message] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1, le=LARGEST)
    parallel_tool_calls: bool | None = None  # None: true
    thinking_token_budget: int | None = Field(None, ge=0, le=LARGEST)
    include_reasoning: bool | None = None  # None: true
    logprobs: bool | None = None
    top_logprobs: Logprobs | None = None


class TokenizeBody(TemplateBody):
    """Either `prompt` or `messages`."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = Field(None, min_length=1)
    return_token_strs: bool = False


class DetokenizeBody(Body):
    model: str | None = None
    tokens: list[TokenId]
