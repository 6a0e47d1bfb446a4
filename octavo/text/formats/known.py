"""Published formats. Facts are from the models' chat templates and model cards."""

# ruff: noqa: RUF001  (DeepSeek's markers have bars and spaces of their own)

from __future__ import annotations

from octavo.text.formats.description import THINK, Calls, Description


def _list(opens: str, closes: str, **options: object) -> Calls:
    """A JSON list of calls."""
    return Calls(opens=opens, call="{call}", between=", ", closes=closes, **options)  # type: ignore[arg-type]


_HERMES = Calls(call="<tool_call>\n{call}\n</tool_call>", between="\n")
_TAGGED = ("<parameter=", ">", "\n", "\n</parameter>\n")

HERMES = Description(
    name="hermes",
    aliases=("qwen", "qwen2_5", "qwen3", "granite4", "longcat"),
    calls=(_HERMES,),
)
QWEN3_CODER = Description(
    name="qwen3_coder",
    aliases=("qwen3_xml",),
    calls=(
        Calls(
            call="<tool_call>\n<function={name}>\n{arguments}</function>\n</tool_call>",
            between="\n",
            syntax="tagged",
            tags=_TAGGED,
        ),
    ),
)
LLAMA3_JSON = Description(
    name="llama3_json",
    aliases=("llama4_json", "llama"),
    calls=(
        Calls(
            call="{call}",
            between="; ",
            anchored=True,
            keys=("name", "parameters", "arguments"),
        ),
        Calls(
            opens="<|python_tag|>",
            call="{call}",
            between="; ",
            keys=("name", "parameters", "arguments"),
        ),
    ),
)
PYTHONIC = Description(
    name="pythonic",
    aliases=("llama4_pythonic",),
    calls=(
        Calls(
            opens="[",
            call="{name}({arguments})",
            between=", ",
            closes="]",
            anchored=True,
            syntax="python",
        ),
        Calls(
            opens="<|python_start|>[",
            call="{name}({arguments})",
            between=", ",
            closes="]<|python_end|>",
            syntax="python",
        ),
    ),
)
LFM2 = Description(
    name="lfm2",
    calls=(
        Calls(
            opens="<|tool_call_start|>[",
            call="{name}({arguments})",
            between=", ",
            closes="]<|tool_call_end|>",
            syntax="python",
        ),
    ),
)
OLMO3 = Description(
    name="olmo3",
    calls=(
        Calls(
            opens="<function_calls>\n",
            call="{name}({arguments})",
            between="\n",
            closes="\n</function_calls>",
            syntax="python",
        ),
    ),
)

_MISTRAL_LIST = _list("[TOOL_CALLS] [", "]")
_MISTRAL_ARGS = Calls(call="[TOOL_CALLS]{name}[ARGS]{arguments}", between="")
_MISTRAL_ID = Calls(call="[TOOL_CALLS]{name}[CALL_ID]{id}[ARGS]{arguments}", between="")
_MISTRAL_BARE = Calls(call="[TOOL_CALLS]{name}{arguments}", between="")
_MISTRAL_THINK = ("[THINK]", "[/THINK]")

MISTRAL = Description(
    name="mistral",
    calls=(_MISTRAL_LIST, _MISTRAL_ARGS, _MISTRAL_ID, _MISTRAL_BARE),
    reasoning=_MISTRAL_THINK,
    ids="mistral",
)
MISTRAL_ARGS = Description(
    name="mistral_args",
    calls=(_MISTRAL_ARGS, _MISTRAL_ID, _MISTRAL_BARE, _MISTRAL_LIST),
    reasoning=_MISTRAL_THINK,
    ids="mistral",
)
DEEPSEEK_V3 = Description(
    name="deepseek_v3",
    aliases=("deepseek_r1",),
    calls=(
        Calls(
            opens="<｜tool▁calls▁begin｜>",
            call="<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{arguments}\n```"
            "<｜tool▁call▁end｜>",
            between="\n",
            closes="<｜tool▁calls▁end｜>",
        ),
    ),
)
DEEPSEEK_V31 = Description(
    name="deepseek_v31",
    calls=(
        Calls(
            opens="<｜tool▁calls▁begin｜>",
            call="<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>",
            between="",
            closes="<｜tool▁calls▁end｜>",
        ),
    ),
)
KIMI_K2 = Description(
    name="kimi_k2",
    calls=(
        Calls(
            opens="<|tool_calls_section_begin|>",
            call="<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>"
            "{arguments}<|tool_call_end|>",
            between="",
            closes="<|tool_calls_section_end|>",
        ),
    ),
    ids="kimi",
)
GLM45 = Description(
    name="glm45",
    aliases=("glm47", "glm4_moe"),
    calls=(
        Calls(
            call="<tool_call>{name}\n{arguments}</tool_call>",
            between="\n",
            syntax="tagged",
            tags=("<arg_key>", "</arg_key>\n", "<arg_value>", "</arg_value>\n"),
        ),
    ),
)
SEED_OSS = Description(
    name="seed_oss",
    calls=(
        Calls(
            call="<seed:tool_call>\n<function={name}>\n{arguments}</function>\n</seed:tool_call>",
            between="\n",
            syntax="tagged",
            tags=("<parameter=", ">", "", "</parameter>\n"),
        ),
    ),
    reasoning=("<seed:think>", "</seed:think>"),
)
MINIMAX_M2 = Description(
    name="minimax_m2",
    calls=(
        Calls(
            opens="<minimax:tool_call>\n",
            call='<invoke name="{name}">\n{arguments}</invoke>',
            between="\n",
            closes="\n</minimax:tool_call>",
            syntax="tagged",
            tags=('<parameter name="', '">', "", "</parameter>\n"),
        ),
    ),
)

_HARMONY_CALLS = tuple(
    Calls(call=f"{head}<|message|>{{arguments}}<|call|>")
    for head in (
        "<|channel|>commentary to=functions.{name} <|constrain|>json",
        "<|channel|>commentary to=functions.{name} json",
        "<|channel|>commentary to=functions.{name}",
        "to=functions.{name}<|channel|>commentary <|constrain|>json",
        "to=functions.{name}<|channel|>commentary json",
        "to=functions.{name}<|channel|>commentary",
    )
)
HARMONY = Description(
    name="openai",
    aliases=("harmony", "openai_gptoss"),
    calls=_HARMONY_CALLS,
    reasoning=("<|channel|>analysis<|message|>", "<|end|>"),
    reopens=True,
    resumes="<|start|>assistant",
    answers="<|channel|>final<|message|>",
    silent=(
        "<|start|>assistant",
        "<|channel|>final<|message|>",
        "<|channel|>commentary<|message|>",
        "<|end|>",
        "<|return|>",
    ),
)
FUNCTION_GEMMA = Description(
    name="functiongemma",
    aliases=("gemma",),
    calls=(
        Calls(
            call="<start_function_call>call:{name}{arguments}<end_function_call>",
            between="",
            syntax="gemma",
            tags=("", "", "<escape>", "<escape>"),
        ),
    ),
    reasoning=None,
)
GEMMA4 = Description(
    name="gemma4",
    calls=(
        Calls(
            call="<|tool_call>call:{name}{arguments}<tool_call|>",
            between="",
            syntax="gemma",
            tags=("", "", '<|"|>', '<|"|>'),
        ),
    ),
    reasoning=("<|channel>thought\n", "<channel|>"),
)
GEMMA3 = Description(
    name="gemma3",
    calls=(
        Calls(
            opens="```tool_code\n",
            call="{name}({arguments})",
            between="\n",
            closes="\n```",
            syntax="python",
        ),
    ),
    reasoning=None,
)
PHI4_MINI = Description(
    name="phi4_mini_json",
    calls=(_list("<|tool_call|>[", "]<|/tool_call|>"), _list("functools[", "]")),
)
GRANITE = Description(name="granite", calls=(_list("<|tool_call|>[", "]"),))
TOOL_CALLS_LIST = Description(
    name="hunyuan_a13b",
    aliases=("jamba",),
    calls=(_list("<tool_calls>[\n    ", "\n]</tool_calls>"),),
)
INTERNLM = Description(
    name="internlm",
    calls=(
        Calls(
            call="<|action_start|><|plugin|>\n{call}<|action_end|>",
            keys=("name", "parameters", "arguments"),
        ),
    ),
)
COMMAND = Description(
    name="command_r7b",
    aliases=("command_a", "cohere"),
    calls=(_list("<|START_ACTION|>[\n", "\n]<|END_ACTION|>", keys=("tool_name", "parameters")),),
    reasoning=("<|START_THINKING|>", "<|END_THINKING|>"),
    silent=("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
)

KNOWN = (
    HERMES,
    QWEN3_CODER,
    GLM45,
    MISTRAL,
    MISTRAL_ARGS,
    DEEPSEEK_V3,
    DEEPSEEK_V31,
    KIMI_K2,
    HARMONY,
    PHI4_MINI,
    GRANITE,
    TOOL_CALLS_LIST,
    INTERNLM,
    COMMAND,
    SEED_OSS,
    MINIMAX_M2,
    FUNCTION_GEMMA,
    GEMMA4,
    GEMMA3,
    LFM2,
    OLMO3,
    LLAMA3_JSON,
    PYTHONIC,
)

# By the names that other servers have for parsers of reasoning.
REASONING = {
    "deepseek_r1": THINK,
    "deepseek_v3": THINK,
    "qwen3": THINK,
    "glm45": THINK,
    "kimi_k2": THINK,
    "minimax_m2": THINK,
    "mistral": _MISTRAL_THINK,
    "seed_oss": ("<seed:think>", "</seed:think>"),
    "granite": ("Here is my thought process:", "Here is my response:"),
    "gemma4": ("<|channel>thought\n", "<channel|>"),
    "command_r7b": ("<|START_THINKING|>", "<|END_THINKING|>"),
}
