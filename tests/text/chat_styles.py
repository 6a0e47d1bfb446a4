"""Chat templates in the styles of public models: their delimiters, in words of our own."""

from __future__ import annotations

# ruff: noqa: RUF001  (DeepSeek's markers have bars and spaces of their own)

CHATML = """{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' %}{{ turn(m) }}{% else %}{{ m.content }}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def _chatml(turn: str, generation: str = "") -> str:
    """ChatML whose assistant's turns are written by the macro's body `turn`, of `m`."""
    return (
        "{%- macro turn(m) -%}" + turn + "{%- endmacro -%}\n"
        "{%- if tools %}<|im_start|>system\n"
        "{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
        + CHATML.replace("assistant\n{% endif %}", "assistant\n" + generation + "{% endif %}")
    )


HERMES = _chatml(
    """{%- if m.content %}{{ m.content }}{% endif %}
{%- for call in m.tool_calls %}
{%- if not loop.first or m.content %}{{ '\\n' }}{% endif -%}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}"""
)
QWEN3 = _chatml(
    """{%- if m.reasoning_content %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{{ m.content }}
{%- for call in m.tool_calls %}
{%- if not loop.first or m.content %}{{ '\\n' }}{% endif -%}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}""",
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}",
)
QWEN3_THINKING = QWEN3.replace(
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}",
    "<think>\n",
)
QWEN3_CODER = _chatml(
    """{{- m.content }}
{%- for call in m.tool_calls %}
{%- if not loop.first or m.content %}{{ '\\n' }}{% endif -%}
<tool_call>
<function={{ call.function.name }}>
{% for name, value in call.function.arguments | items %}<parameter={{ name }}>
{{ value if value is string else value | tojson }}
</parameter>
{% endfor %}</function>
</tool_call>
{%- endfor %}"""
)
GRANITE = _chatml(
    """{{- m.content }}
{%- for call in m.tool_calls %}
{%- if loop.first %}<|tool_call|>[{% endif -%}
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
{%- if loop.last %}]{% else %}, {% endif %}
{%- endfor %}"""
)
HUNYUAN = _chatml(
    """{{- m.content }}
{%- for call in m.tool_calls %}
{%- if loop.first %}<tool_calls>[{{ '\\n    ' }}{% endif -%}
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
{%- if loop.last %}{{ '\\n' }}]</tool_calls>{% else %}, {% endif %}
{%- endfor %}"""
)
LFM2 = _chatml(
    """{%- macro value(v) %}{% if v is string %}{{ v | tojson }}{% elif v is true %}True
{%- elif v is false %}False{% elif v is none %}None{% elif v is mapping %}
{%- raw %}{{% endraw %}{% for k, e in v | items %}{{ k | tojson }}: {{ value(e) }}
{%- if not loop.last %}, {% endif %}{% endfor %}{% raw %}}{% endraw %}
{%- elif v is number %}{{ v }}{% else %}[{% for e in v %}{{ value(e) }}
{%- if not loop.last %}, {% endif %}{% endfor %}]{% endif %}{% endmacro -%}
{{ m.content }}{% for call in m.tool_calls %}
{%- if loop.first %}<|tool_call_start|>[{% endif %}{{ call.function.name }}(
{%- for k, v in call.function.arguments | items %}{{ k }}={{ value(v) }}
{%- if not loop.last %}, {% endif %}{% endfor %})
{%- if loop.last %}]<|tool_call_end|>{% else %}, {% endif %}{% endfor %}"""
)
PYTHONIC = LFM2.replace("<|tool_call_start|>", "").replace("<|tool_call_end|>", "")
OLMO3 = _chatml(
    """{{- m.content }}{% for call in m.tool_calls %}
{%- if loop.first %}<function_calls>{{ '\\n' }}{% endif %}{{ call.function.name }}(
{%- for k, v in call.function.arguments | items %}{{ k }}={{ v | tojson }}
{%- if not loop.last %}, {% endif %}{% endfor %}){{ '\\n' }}
{%- if loop.last %}</function_calls>{% endif %}{% endfor %}"""
)
SEED_OSS = _chatml(
    """{%- if m.reasoning_content %}<seed:think>{{ m.reasoning_content }}</seed:think>{% endif %}
{{- m.content }}{% for call in m.tool_calls %}{{ '\\n' if not loop.first }}<seed:tool_call>
<function={{ call.function.name }}>
{% for name, value in call.function.arguments | items -%}
<parameter={{ name }}>{{ value if value is string else value | tojson }}</parameter>
{% endfor %}</function>
</seed:tool_call>{% endfor %}"""
)
MINIMAX = _chatml(
    """{%- if m.reasoning_content %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{{ m.content }}{% for call in m.tool_calls %}
{%- if loop.first %}<minimax:tool_call>{{ '\\n' }}{% endif -%}
<invoke name="{{ call.function.name }}">
{% for name, value in call.function.arguments | items -%}
<parameter name="{{ name }}">{{ value if value is string else value | tojson }}</parameter>
{% endfor %}</invoke>
{% if loop.last %}</minimax:tool_call>{% endif %}{% endfor %}""",
    "<think>\n",
)

LLAMA3 = """{{ bos_token }}{% if tools %}<|start_header_id|>system<|end_header_id|>

{% for tool in tools %}{{ tool | tojson(indent=4) }}{% endfor %}<|eot_id|>{% endif %}
{%- for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>

{% if m.tool_calls %}
{%- if m.tool_calls | length != 1 %}{{ raise_exception('one call at once') }}{% endif %}
{%- set call = m.tool_calls[0].function -%}
{"name": "{{ call.name }}", "parameters": {{ call.arguments | tojson }}}
{%- else %}{{ m.content }}{% endif %}<|eot_id|>{% endfor %}
{%- if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>

{% endif %}"""

_INST = """{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}
{%- if tools and loop.first %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif -%}
[INST]{{ m.content }}[/INST]{% elif m.tool_calls %}%s{{ eos_token }}
{%- else %}{{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"""

MISTRAL = _INST.replace(
    "%s",
    """[TOOL_CALLS] [{% for call in m.tool_calls %}{% if call.id | length != 9 %}
{{- raise_exception('ids have 9 characters') }}{% endif -%}
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}
{{- ', "id": "' + call.id + '"}' }}{% if not loop.last %}, {% endif %}{% endfor %}]""",
)
MISTRAL_ARGS = _INST.replace(
    "%s",
    """{% for call in m.tool_calls %}[TOOL_CALLS]{{ call.function.name }}[ARGS]
{{- call.function.arguments | tojson }}{% endfor %}""",
)

_DEEPSEEK = """{{ bos_token }}{% if tools %}{{ tools | tojson }}{% endif %}
{%- for m in messages %}{% if m.role == 'user' %}<｜User｜>{{ m.content }}
{%- else %}<｜Assistant｜>@{% if m.content %}{{ m.content.split('</think>')[-1] }}{% endif %}
{%- for call in m.tool_calls %}{% if loop.first %}<｜tool▁calls▁begin｜>{% endif %}$
{%- if loop.last %}<｜tool▁calls▁end｜>{% endif %}{% endfor -%}
<｜end▁of▁sentence｜>{% endif %}{% endfor %}
{%- if add_generation_prompt %}<｜Assistant｜>#{% endif %}"""

DEEPSEEK_R1 = (
    _DEEPSEEK.replace("@", "")
    .replace("#", "<think>\n")
    .replace(
        "$",
        """{% if not loop.first %}{{ '\\n' }}{% endif -%}
<｜tool▁call▁begin｜>function<｜tool▁sep｜>{{ call.function.name }}
```json
{{ call.function.arguments }}
```<｜tool▁call▁end｜>""",
    )
    .replace("{{ call.function.arguments }}", "{{ call.function.arguments + '' }}")  # text only
)
DEEPSEEK_V31 = (
    _DEEPSEEK.replace("@", "</think>")
    .replace("#", "{% if thinking %}<think>{% else %}</think>{% endif %}")
    .replace(
        "$",
        "<｜tool▁call▁begin｜>{{ call.function.name }}<｜tool▁sep｜>"
        "{{ call.function.arguments | tojson }}<｜tool▁call▁end｜>",
    )
)
KIMI_K2 = """{% if tools %}<|im_system|>{{ tools | tojson }}<|im_end|>{% endif %}
{%- for m in messages %}<|im_{{ m.role }}|>{{ m.role }}<|im_middle|>
{%- if m.content %}{{ m.content }}{% endif %}
{%- for call in m.tool_calls %}{% if loop.first %}<|tool_calls_section_begin|>{% endif -%}
<|tool_call_begin|>functions.{{ call.function.name }}:{{ loop.index0 -}}
<|tool_call_argument_begin|>{{ call.function.arguments | tojson }}<|tool_call_end|>
{%- if loop.last %}<|tool_calls_section_end|>{% endif %}{% endfor %}<|im_end|>{% endfor %}
{%- if add_generation_prompt %}<|im_assistant|>assistant<|im_middle|>{% endif %}"""

GLM45 = """[gMASK]<sop>{% if tools %}<|system|>
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}{% endif %}
{%- for m in messages %}<|{{ m.role }}|>
{%- if m.role == 'assistant' %}
<think>{{ m.reasoning_content | default('') }}</think>
{%- if m.content %}{{ '\\n' + m.content }}{% endif %}
{%- for call in m.tool_calls %}
<tool_call>{{ call.function.name }}
{% for name, value in call.function.arguments | items %}<arg_key>{{ name }}</arg_key>
<arg_value>{{ value if value is string else value | tojson }}</arg_value>
{% endfor %}</tool_call>{% endfor %}
{%- else %}
{{ m.content }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|assistant|>{% if enable_thinking is defined
    and not enable_thinking %}
<think></think>{% endif %}{% endif %}"""

HARMONY = """<|start|>system<|message|>Reasoning: {{ reasoning_effort | default('medium') }}<|end|>
{%- if tools %}<|start|>developer<|message|>{{ tools | tojson }}<|end|>{% endif %}
{%- for m in messages %}{% if m.role == 'assistant' %}
{%- if m.tool_calls %}{% if m.tool_calls | length > 1 %}{{ raise_exception('one') }}{% endif %}
{%- set call = m.tool_calls[0].function -%}
<|start|>assistant to=functions.{{ call.name }}<|channel|>commentary json<|message|>
{{- call.arguments | tojson }}<|call|>
{%- else %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|return|>{% endif %}
{%- else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}"""

_GEMMA = """{%- macro value(v) %}{% if v is string %}<escape>{{ v }}<escape>
{%- elif v is mapping %}{% raw %}{{% endraw %}{% for k, e in v | dictsort %}{{ k }}:{{ value(e) }}
{%- if not loop.last %},{% endif %}{% endfor %}{% raw %}}{% endraw %}
{%- elif v is number or v is none %}{{ v | tojson }}{% else %}[{% for e in v %}{{ value(e) }}
{%- if not loop.last %},{% endif %}{% endfor %}]{% endif %}{% endmacro -%}
{{ bos_token }}{% if tools %}<start_of_turn>developer
{{ tools | tojson }}<end_of_turn>
{% endif %}{% for m in messages -%}
<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}
{{ m.content }}{% for call in m.tool_calls -%}
<start_function_call>call:{{ call.function.name }}{{ value(call.function.arguments) -}}
<end_function_call>{% endfor %}<end_of_turn>
{% endfor %}{% if add_generation_prompt %}<start_of_turn>model
{% endif %}"""
FUNCTION_GEMMA = _GEMMA
GEMMA4 = (
    _GEMMA.replace("<escape>", '<|"|>')
    .replace("<start_function_call>", "<|tool_call>")
    .replace("<end_function_call>", "<tool_call|>")
    .replace("start_of_turn", "|turn>")
)
COMMAND = """{{ bos_token }}{% if tools %}{{ tools | tojson }}{% endif %}
{%- for m in messages %}{% if m.role == 'user' -%}
<|START_OF_TURN_TOKEN|><|USER_TOKEN|>{{ m.content }}<|END_OF_TURN_TOKEN|>
{%- else %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>
{%- if m.tool_calls %}{% if m.reasoning_content -%}
<|START_THINKING|>{{ m.reasoning_content }}<|END_THINKING|>{% endif -%}
<|START_ACTION|>[
{% for call in m.tool_calls %}    {"tool_call_id": "{{ loop.index0 }}", "tool_name": "
{{- call.function.name }}", "parameters": {{ call.function.arguments | tojson }}}
{%- if not loop.last %},{% endif %}
{% endfor %}]<|END_ACTION|>
{%- else %}<|START_RESPONSE|>{{ m.content }}<|END_RESPONSE|>{% endif %}<|END_OF_TURN_TOKEN|>
{%- endif %}{% endfor %}{% if add_generation_prompt -%}
<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}"""
INTERNLM = _chatml(
    """{{- m.content }}{% for call in m.tool_calls %}<|action_start|><|plugin|>
{"name": "{{ call.function.name }}", "parameters": {{ call.function.arguments | tojson }}}
{{- '<|action_end|>' }}{% endfor %}"""
)
PHI4 = """{% for m in messages %}<|{{ m.role }}|>{{ m.content }}
{%- for call in m.tool_calls %}{% if loop.first %}<|tool_call|>[{% endif -%}
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
{%- if loop.last %}]<|/tool_call|>{% else %}, {% endif %}{% endfor %}<|end|>{% endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}"""

STYLES = {  # template, name of the format that it is to get
    "hermes": (HERMES, "hermes"),
    "qwen3": (QWEN3, "hermes"),
    "qwen3_thinking": (QWEN3_THINKING, "hermes"),
    "qwen3_coder": (QWEN3_CODER, "qwen3_coder"),
    "granite": (GRANITE, "granite"),
    "hunyuan": (HUNYUAN, "hunyuan_a13b"),
    "lfm2": (LFM2, "lfm2"),
    "pythonic": (PYTHONIC, "pythonic"),
    "olmo3": (OLMO3, "olmo3"),
    "seed_oss": (SEED_OSS, "seed_oss"),
    "minimax": (MINIMAX, "minimax_m2"),
    "llama3": (LLAMA3, "llama3_json"),
    "mistral": (MISTRAL, "mistral"),
    "mistral_args": (MISTRAL_ARGS, "mistral_args"),
    "deepseek_r1": (DEEPSEEK_R1, "deepseek_v3"),
    "deepseek_v31": (DEEPSEEK_V31, "deepseek_v31"),
    "kimi_k2": (KIMI_K2, "kimi_k2"),
    "glm45": (GLM45, "glm45"),
    "harmony": (HARMONY, "openai"),
    "function_gemma": (FUNCTION_GEMMA, "functiongemma"),
    "gemma4": (GEMMA4, "gemma4"),
    "command": (COMMAND, "command_r7b"),
    "internlm": (INTERNLM, "internlm"),
    "phi4": (PHI4, "phi4_mini_json"),
}
