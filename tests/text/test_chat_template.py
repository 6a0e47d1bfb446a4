"""Rendered chats equal transformers' `apply_chat_template`."""

from __future__ import annotations

import pytest
from vocabularies import byte_level

from octavo.base.errors import ModelError, RequestError
from octavo.text import chat_template
from octavo.text.chat_template import ChatTemplate
from octavo.text.tokenizer import load_tokenizer

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}

CHATML = """{% for message in messages %}
{% if loop.first and message['role'] != 'system' %}
{{ '<|im_start|>system\\nYou are kind.<|im_end|>\\n' }}
{% endif %}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

LLAMA3 = """{{- bos_token }}
{%- if messages[0].role == 'system' %}
    {%- set system = messages[0].content | trim %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set system = '' %}
    {%- set rest = messages %}
{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}
{%- if tools is not none %}
    {{- 'Environment: ipython\\n' }}
    {%- for tool in tools %}{{ tool | tojson(indent=4) }}{{ '\\n\\n' }}{%- endfor %}
{%- endif %}
{{- system + '<|eot_id|>' }}
{%- for message in rest %}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}
    {%- if message.tool_calls is defined %}
        {%- for call in message.tool_calls %}{{ call | tojson }}{%- endfor %}
    {%- else %}
        {{- message.content | trim }}
    {%- endif %}
    {{- '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}"""

MISTRAL = """{{ bos_token }}{% for message in messages %}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
{{ raise_exception('Roles must alternate user/assistant') }}
{%- endif -%}
{%- if message['role'] == 'user' %} [INST] {{ message['content'] }} [/INST]
{%- else %} {{ message['content'] }}{{ eos_token }}{% endif %}
{%- endfor %}"""

PARTS = """{% for message in messages %}[{{ message.role }}]
{%- if message.content is string %}{{ message.content }}
{%- else %}{% for part in message.content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}
{%- endfor %}{% endif %}{% endfor %}"""

ONLY_PARTS = """{% for message in messages %}[{{ message.role }}]
{%- for part in message.content %}{{ part.text }}{% endfor %}{% endfor %}"""

GENERATION = """{% for message in messages %}{% if loop.index > 8 %}{% break %}{% endif %}
{% if message.role == 'assistant' %}
{% generation %}
{% set inner = message.content %}
{{ inner }}
{% endgeneration %}
{% else %}{{ message.content }}{% endif %}{{ inner }}|{% endfor %}"""

STYLES = {
    "chatml": CHATML,
    "llama3": LLAMA3,
    "mistral": MISTRAL,
    "parts": PARTS,
    "generation": GENERATION,
}

USER = {"role": "user", "content": " What is 'é' <b> & 你好?  "}
CHATS = [
    [USER],
    [USER, {"role": "assistant", "content": "  An answer, with spaces  "}],
    [USER, {"role": "assistant", "content": "Fine."}, {"role": "user", "content": "Go on"}],
]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "<é>", "parameters": {}}}]


@pytest.fixture(scope="module")
def reference():
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=byte_level(), **SPECIAL)


@pytest.mark.parametrize("chat", CHATS, ids=len)
@pytest.mark.parametrize("style", STYLES)
def test_equals_transformers(reference, style, chat):
    ours = ChatTemplate(STYLES[style], SPECIAL)
    for options in (
        {"add_generation_prompt": True},
        {"add_generation_prompt": False},
        {"add_generation_prompt": False, "continue_final_message": True},
        {"add_generation_prompt": True, "tools": TOOLS, "documents": [{"title": "t"}], "extra": 1},
    ):
        expected = reference.apply_chat_template(
            chat, chat_template=STYLES[style], tokenize=False, **options
        )
        assert ours.render(chat, **options) == expected


def test_null_fields_are_absent(reference):
    call = {"id": "1", "function": {"name": "f", "arguments": {"ü": 1}}}
    chat = [USER, {"role": "assistant", "content": None, "tool_calls": [call]}]
    expected = reference.apply_chat_template(
        chat, chat_template=LLAMA3, tokenize=False, add_generation_prompt=True
    )
    text = ChatTemplate(LLAMA3, SPECIAL).render(chat)
    assert text == expected
    assert "ü" in text and "None" not in text


def test_default_model(default_model, default_reference):
    tokenizer = load_tokenizer(default_model)
    template = ChatTemplate(tokenizer.chat_template, tokenizer.special_tokens)
    for chat in CHATS:
        text = template.render(chat)
        expected = default_reference.apply_chat_template(
            chat, add_generation_prompt=True, return_dict=False
        )
        assert tokenizer.encode_chat(text) == expected
        assert text.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")


@pytest.mark.parametrize("style", STYLES)
def test_text_parts_are_joined_where_the_template_wants_strings(style):
    template = ChatTemplate(STYLES[style], SPECIAL)
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    joined = "onetwo" if style == "parts" else "one\ntwo"
    expected = template.render([{"role": "user", "content": joined}])
    assert template.render([{"role": "user", "content": parts}]) == expected


def test_strings_become_parts_where_the_template_wants_parts():
    template = ChatTemplate(ONLY_PARTS, SPECIAL)
    assert template.render([{"role": "user", "content": "hello"}]) == "[user]hello"


def test_continue_in_text_parts(reference):
    chat = [USER, {"role": "assistant", "content": [{"type": "text", "text": "so far"}]}]
    options = {"add_generation_prompt": False, "continue_final_message": True}
    expected = reference.apply_chat_template(chat, chat_template=PARTS, tokenize=False, **options)
    text = ChatTemplate(PARTS, SPECIAL).render(chat, **options)
    assert text == expected
    assert text.endswith("[assistant]so far")
    assert chat[-1]["content"][0]["text"] == "so far"  # the caller's messages are left alone


@pytest.mark.parametrize("chat", CHATS, ids=len)
@pytest.mark.parametrize("style", STYLES)
def test_sections_are_the_prompt_cut_behind_each_message(style, chat):
    template = ChatTemplate(STYLES[style], SPECIAL)
    sections = template.sections(chat)
    assert [index for index, _ in sections] == list(range(len(chat)))
    for index, piece in sections:
        assert piece.endswith(chat[index]["content"].strip())
    joined = "".join(piece for _, piece in sections)
    whole, dense = ("".join(text.split()) for text in (template.render(chat), joined))
    assert whole.startswith(dense)


def test_sections_of_messages_in_parts_or_without_text():
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two "}]
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}
    chat = [{"role": "user", "content": parts}, call, USER]
    assert ChatTemplate(PARTS, SPECIAL).sections([chat[0]]) == [(0, "[user]onetwo")]
    (first, one), (second, other) = ChatTemplate(LLAMA3, SPECIAL).sections(chat)
    assert (first, second) == (0, 2)
    assert one.endswith("one\ntwo")
    assert '"name": "f"' in other
    open_end = {"add_generation_prompt": False, "continue_final_message": True}
    assert ChatTemplate(CHATML, SPECIAL).sections([USER], **open_end)[0][1].endswith("你好?")
    assert chat[0]["content"][1]["text"] == "two "  # the caller's messages are left alone


def test_other_parts_are_refused():
    image = {"type": "image_url", "image_url": {"url": "x"}}
    for source in (CHATML, PARTS):
        with pytest.raises(RequestError, match="content of type 'image_url'") as caught:
            ChatTemplate(source, SPECIAL).render([{"role": "user", "content": [image]}])
        assert caught.value.field == "messages"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ raise_exception('only one system message') }}", "only one system message"),
        ("{{ messages[0].nothing.there }}", "no attribute 'nothing'"),
        ("{{ messages[0].content + 1 }}", "chat template"),
        ("{{ 1 / (messages | length - 1) }}", "division by zero"),
        ("{{ messages.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
    ],
)
def test_errors_of_the_template_are_the_clients(source, message):
    with pytest.raises(RequestError, match=message) as caught:
        ChatTemplate(source, SPECIAL).render([USER])
    assert caught.value.field == "messages"


def test_syntax_errors_are_the_models():
    with pytest.raises(ModelError, match=r"chat template, line 2: .*endfor"):
        ChatTemplate("a\n{% endfor %}", SPECIAL)


def test_requests_that_make_no_sense():
    template = ChatTemplate(CHATML, SPECIAL)
    with pytest.raises(RequestError, match="empty"):
        template.render([])
    with pytest.raises(RequestError, match="exclude each other"):
        template.render([USER], continue_final_message=True)
    silent = ChatTemplate("nothing", SPECIAL)
    for template, chat, message in (
        (silent, [USER], "does not show"),
        (ChatTemplate(CHATML, SPECIAL), [{"role": "user"}], "no text"),
    ):
        with pytest.raises(RequestError, match=message):
            template.render(chat, add_generation_prompt=False, continue_final_message=True)


def test_output_is_bounded(monkeypatch):
    monkeypatch.setattr(chat_template, "MAX_CHARACTERS", 1000)
    with pytest.raises(RequestError, match="over 1000 characters"):
        ChatTemplate("{% for i in range(9999) %}xx{% endfor %}", SPECIAL).render([USER])


def test_clock():
    assert ChatTemplate("{{ strftime_now('%Y') }}", SPECIAL).render([USER]).startswith("20")
