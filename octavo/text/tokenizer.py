"""Text to token ids and back, for one model. Knows the tokenizer's files, not the model's."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers.processors import TemplateProcessing

from octavo.base.errors import ModelError, RequestError
from octavo.files.model_files import ModelFiles
from octavo.text.gguf_tokenizer import build_backend, named_tokens, wanted_ends
from octavo.text.spelling import Spelling, leading_spaces

_LARGEST_ID = 2**32 - 1  # of the tokenizers package


class Tokenizer:
    """A vocabulary with its rules. Never changes after it is made, so threads may share it."""

    def __init__(
        self,
        backend: Backend,
        *,
        special_tokens: dict[str, str] | None = None,
        chat_template: str | None = None,
        source: str = "tokenizer",
    ) -> None:
        """`special_tokens` maps names as templates know them ("bos_token") to their strings.

        Raises:
            ModelError: the decoder is of a kind that no generating model uses.
        """
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self.spelling = Spelling.of(backend, source)
        self.special_tokens = special_tokens or {}
        self.chat_template = chat_template
        added = backend.get_added_tokens_decoder()
        self.special_ids = frozenset(id for id, token in added.items() if token.special)
        # Tokens that ordinary text is never cut into in another way.
        self.added_tokens = {token.content: id for id, token in added.items()}
        self._bytes: dict[int, bytes] = {}  # filled as ids are met

    @property
    def vocab_size(self) -> int:
        """Number of tokens, added ones included; a model's logits may be padded beyond it."""
        return self._backend.get_vocab_size(with_added_tokens=True)

    @cached_property
    def longest_token(self) -> int:
        """Bytes of the longest token: a text of n bytes has at least n / longest_token tokens."""
        return max(len(self.token_bytes(id)) for id in range(self.vocab_size))

    @property
    def bos_token(self) -> str | None:
        return self.special_tokens.get("bos_token")

    @property
    def eos_token(self) -> str | None:
        return self.special_tokens.get("eos_token")

    @property
    def eos_token_id(self) -> int | None:
        return None if self.eos_token is None else self.token_id(self.eos_token)

    def token_id(self, token: str) -> int | None:
        """The id of a token given as the vocabulary spells it."""
        return self._backend.token_to_id(token)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Raises RequestError where `text` holds a lone surrogate, which is no character."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RequestError(f"the prompt is not text: {error}", "prompt") from error
        # The one call that lets other threads run meanwhile: a long text must not hold them up.
        [encoding] = self._backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return encoding.ids

    def encode_chat(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """Encode a rendered chat template. As a rule it has written every special token that the
        model wants; where some are to be added, there is still never a second BOS."""
        opened = self.bos_token is not None and text.startswith(self.bos_token)
        return self.encode(text, add_special_tokens and not opened)

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """The text of `ids` on their own; ids that the vocabulary lacks have none."""
        hidden = self.special_ids if skip_special_tokens else frozenset()
        spelled = b"".join(self.token_bytes(id) for id in ids if id not in hidden)
        text = spelled.decode(errors="replace")
        return text[leading_spaces(text, self.spelling.strip) :]

    def token_bytes(self, id: int) -> bytes:
        """The exact bytes that token `id` stands for; none for an id that the vocabulary lacks."""
        spelled = self._bytes.get(id)
        if spelled is None:
            token = self._backend.id_to_token(id) if 0 <= id <= _LARGEST_ID else None
            spelled = b"" if token is None else self.spelling.bytes_of(token)
            if token is not None:  # so the cache never outgrows the vocabulary
                self._bytes[id] = spelled
        return spelled

    def token(self, id: int) -> str:
        r"""The token's string for logprobs: its text, or where its bytes are a cut-off character,
        each byte as \xNN."""
        spelled = self.token_bytes(id)
        try:
            return spelled.decode()
        except UnicodeDecodeError:
            return "".join(f"\\x{byte:02x}" for byte in spelled)


def load_tokenizer(files: ModelFiles, override: str | None = None) -> Tokenizer:
    """The tokenizer of a model, or the one in `override`: a folder, a tokenizer.json, a .gguf.

    Raises:
        ModelError: there is none, or it cannot be understood.
    """
    if override is None:
        return _from_gguf(files) if files.is_gguf else _from_folder(files, "tokenizer.json")
    path = Path(override)
    if path.suffix == ".json":
        return _from_folder(ModelFiles(files.name, path.parent), path.name)
    return load_tokenizer(ModelFiles(files.name, path))


def _from_gguf(files: ModelFiles) -> Tokenizer:
    metadata = files.gguf.metadata
    source = str(files.path)
    backend = build_backend(metadata, source)
    special_tokens = named_tokens(metadata)
    _add_ends(backend, special_tokens, *wanted_ends(metadata))
    template = metadata.get("tokenizer.chat_template")
    return Tokenizer(backend, special_tokens=special_tokens, chat_template=template, source=source)


def _from_folder(files: ModelFiles, name: str) -> Tokenizer:
    backend = _read_backend(files.path, name)
    config = files.json("tokenizer_config.json") or {}
    special_tokens = _special_tokens((files.json("special_tokens_map.json") or {}) | config)
    if backend.num_special_tokens_to_add(False) == 0:  # else its own post-processor says
        bos, eos = config.get("add_bos_token"), config.get("add_eos_token")
        _add_ends(backend, special_tokens, bool(bos), bool(eos))
    return Tokenizer(
        backend,
        special_tokens=special_tokens,
        chat_template=_chat_template(files, config),
        source=str(files.path / name),
    )


def _read_backend(folder: Path, name: str) -> Backend:
    file = folder / name
    if not file.is_file():
        if (folder / "tokenizer.model").is_file():
            raise ModelError(
                f"{folder} has only a sentencepiece tokenizer.model; a tokenizer.json is needed "
                "(AutoTokenizer.from_pretrained(folder).save_pretrained(folder) writes one)"
            )
        raise ModelError(
            f"{folder} has no {name}; it is needed, or --tokenizer, or --skip-tokenizer-init"
        )
    try:
        return Backend.from_str(file.read_text(encoding="utf-8"))
    except Exception as error:  # the tokenizers package raises no narrower type
        raise ModelError(f"{file} is not a tokenizer: {error}") from error


def _special_tokens(config: dict[str, Any]) -> dict[str, str]:
    """Entries such as "bos_token": "<s>" or {"content": "<s>", ...}."""
    found = {}
    for name, value in config.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            found[name] = text
    return found


def _chat_template(files: ModelFiles, config: dict[str, Any]) -> str | None:
    file = files.path / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):  # several, by name
        return {entry["name"]: entry["template"] for entry in template}.get("default")
    return template


def _add_ends(backend: Backend, special_tokens: dict[str, str], bos: bool, eos: bool) -> None:
    """Make `encode` put BOS before and EOS after a text, as wanted."""
    first, last = special_tokens.get("bos_token"), special_tokens.get("eos_token")
    ends = [token for token, wanted in ((first, bos), (last, eos)) if wanted and token]
    if not ends:
        return
    parts = [first if bos and first else None, "$A", last if eos and last else None]
    backend.post_processor = TemplateProcessing(
        single=[part for part in parts if part],
        special_tokens=[(token, backend.token_to_id(token)) for token in ends],
    )
