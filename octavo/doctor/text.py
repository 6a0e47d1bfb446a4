"""What can be wrong with text before a model sees it: tokenizer, special tokens, chat template."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from octavo.base.errors import ModelError, RequestError
from octavo.doctor.finding import Finding, ok, warning, wrong
from octavo.text.renderer import Renderer
from octavo.text.tokenizer import Tokenizer

Talk = list[dict[str, str]]

REPORT = "please report this with the model's name"
TRICKY = {
    "plain": "The quick brown fox.",
    "leading spaces": "   three spaces, and   three",
    "newlines": "one\n\ntwo\r\n\tthree\n",
    "accents": "naïve café, Straße, Ångström",
    "CJK": "你好世界。こんにちは 안녕하세요",
    "emoji": "🙂 👍🏽 🇫🇷",
    "joined emoji": "\U0001f469\u200d\U0001f469\u200d\U0001f467 family",
    "right to left": "שלום مرحبا",
    "rare": "\U0001d518\U0001d52b \u200b zero width, \u00a0 no-break",
    "code": "def f(x):\n    return x ** 2  # 'done'",
}
TALKS: dict[str, Talk] = {
    "a question": [{"role": "user", "content": "What is the capital of Japan?"}],
    "a system message": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi! \U0001f469\u200d\U0001f469\u200d\U0001f467"},
    ],
    "three turns": [
        {"role": "user", "content": "2 + 2?"},
        {"role": "assistant", "content": "4"},
        {"role": "user", "content": "  and\n\n3 + 3?  "},
    ],
}


class Truth(Protocol):
    """Another tokenizer and chat template of the same model. Where it only `guesses` how words are
    cut, ids that differ prove nothing."""

    guesses: bool

    def encode(self, text: str) -> list[int]: ...

    def chat(self, messages: Talk) -> tuple[str, list[int]]: ...


def text_findings(
    renderer: Renderer, vocab_size: int, eos: tuple[int, ...], truth: Truth | None
) -> Iterator[Finding]:
    """`vocab_size` and `eos` are the model's."""
    tokenizer = renderer.tokenizer
    yield _round_trip(tokenizer)
    if truth is not None:
        yield _same_ids(tokenizer, truth)
    yield _special_tokens(tokenizer, vocab_size)
    yield _ends(tokenizer, eos)
    if tokenizer.bos_token is not None:
        yield _one_bos(renderer, tokenizer.bos_token)
    if not _has_template(renderer):
        yield warning("chat template", "the model has none", "chats need one: --chat-template FILE")
    elif truth is not None:
        yield _same_chats(renderer, truth)


def _round_trip(tokenizer: Tokenizer) -> Finding:
    changed = [
        name
        for name, text in TRICKY.items()
        if tokenizer.decode(tokenizer.encode(text, False), False) != text
    ]
    if changed:
        return warning(
            "round trip",
            f"text comes back changed: {', '.join(changed)}",
            "some tokenizers normalise text; if this one does not, its files are incomplete",
        )
    return ok("round trip", f"{len(TRICKY)} texts come back as they were")


def _same_ids(tokenizer: Tokenizer, truth: Truth) -> Finding:
    differ = [
        n for n, text in TRICKY.items() if tokenizer.encode(text, False) != truth.encode(text)
    ]
    if differ:
        return _other_ids("token ids", f"not those of Transformers: {', '.join(differ)}", truth)
    return ok("token ids", f"of {len(TRICKY)} texts as in Transformers")


def _special_tokens(tokenizer: Tokenizer, vocab_size: int) -> Finding:
    ids = {name: tokenizer.token_id(token) for name, token in tokenizer.special_tokens.items()}
    bad = [name for name, id in ids.items() if id is None or id >= vocab_size]
    what = f"not in the model's vocabulary of {vocab_size}: {', '.join(bad)}"
    if {"bos_token", "eos_token"}.intersection(bad):
        return wrong(
            "special tokens",
            what,
            "tokenizer and weights are of different models; --tokenizer FOLDER takes another",
        )
    if bad:
        return warning("special tokens", what, "prompts that have them are refused")
    split = [
        n for n, id in ids.items() if tokenizer.encode(tokenizer.special_tokens[n], False) != [id]
    ]
    if split:
        return warning(
            "special tokens",
            f"no single token when written in text: {', '.join(split)}",
            "templates that write them will not work; see tokenizer.json's added_tokens",
        )
    return ok("special tokens", ", ".join(f"{name} {id}" for name, id in ids.items()) or "none")


def _ends(tokenizer: Tokenizer, eos: tuple[int, ...]) -> Finding:
    named = ", ".join(f"{tokenizer.token(id)!r} ({id})" for id in eos)
    if not eos:
        return warning(
            "end of answer",
            "the model names no token that ends an answer",
            "answers end at max_tokens only: give stop_token_ids, or mend generation_config.json",
        )
    if tokenizer.eos_token_id is not None and tokenizer.eos_token_id not in eos:
        return warning(
            "end of answer",
            f"{named}, but the tokenizer's is {tokenizer.eos_token_id}",
            "if answers do not end, put both into eos_token_id of generation_config.json",
        )
    return ok("end of answer", named)


def _one_bos(renderer: Renderer, bos: str) -> Finding:
    tokenizer = renderer.tokenizer
    id = tokenizer.token_id(bos)
    plain = _leading(tokenizer.encode("text"), id)
    chat = _leading(renderer.encode_chat(TALKS["a question"]), id) if _has_template(renderer) else 0
    if max(plain, chat) > 1:
        return wrong(
            "BOS", f"{plain} before a text, {chat} before a chat", "the template writes it twice"
        )
    return ok("BOS", f"{bos!r}: {plain} before a text, {chat} before a chat, never two")


def _leading(ids: list[int], id: int | None) -> int:
    return next((n for n, found in enumerate(ids) if found != id), len(ids))


def _has_template(renderer: Renderer) -> bool:
    try:
        renderer.render(TALKS["a question"])
    except RequestError:
        return False
    return True


def _same_chats(renderer: Renderer, truth: Truth) -> Finding:
    def mine(talk: Talk) -> tuple[str, list[int]]:
        return renderer.render(talk), renderer.encode_chat(talk)

    chats = {name: (_chat(mine, talk), _chat(truth.chat, talk)) for name, talk in TALKS.items()}
    texts = [name for name, (ours, theirs) in chats.items() if ours[0] != theirs[0]]
    ids = [name for name, (ours, theirs) in chats.items() if ours[1] != theirs[1]]
    if texts:
        what = f"not what apply_chat_template writes: {', '.join(texts)}"
        return wrong("chat template", what, REPORT)
    if ids:
        what = f"token ids are not those of apply_chat_template: {', '.join(ids)}"
        return _other_ids("chat template", what, truth)
    refused = [name for name, (ours, _) in chats.items() if ours[0] is None]
    said = f"{len(chats) - len(refused)} conversations give the ids of apply_chat_template"
    return ok("chat template", said + (f"; both refuse {', '.join(refused)}" if refused else ""))


def _chat(
    render: Callable[[Talk], tuple[str, list[int]]], talk: Talk
) -> tuple[str | None, list[int] | None]:
    """Nothing where the template refuses."""
    try:
        return render(talk)
    except (RequestError, ModelError):
        return None, None


def _other_ids(name: str, text: str, truth: Truth) -> Finding:
    if truth.guesses:
        advice = (
            "Transformers guesses how a GGUF file's text is cut into words; --tokenizer FOLDER "
        )
        return warning(name, text, advice + "compares with the model's own tokenizer.json")
    return wrong(name, text, REPORT)
