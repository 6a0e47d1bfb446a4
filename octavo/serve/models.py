"""The one model that is served, by the names clients may call it."""

from __future__ import annotations

import hashlib
import time

import msgspec

from octavo import __version__
from octavo.base.errors import NotFoundError
from octavo.engine.info import EngineInfo
from octavo.serve.openai.wire import ModelCard


class ServedModel:
    """`name` is what answers say; `others` (a path, a hub id) are understood as well."""

    def __init__(self, info: EngineInfo, name: str, others: tuple[str, ...] = ()) -> None:
        self.name = name
        self._names = {name, *others}
        self.card = ModelCard(
            id=name, created=int(time.time()), root=info.model, max_model_len=info.max_model_len
        )
        # What an answer can depend on besides the request and its prompt's token ids: equal prints,
        # equal answers.
        print_of = (
            __version__,
            info.digest,
            sorted(info.generation_defaults.items()),
            info.logits_processors,
        )
        self.fingerprint = "fp_" + hashlib.sha256(msgspec.json.encode(print_of)).hexdigest()[:10]

    def check(self, name: str | None) -> None:
        """Raises:
        NotFoundError: `name` is another model. None means this one.
        """
        if name is not None and name not in self._names:
            raise NotFoundError(
                f"model {name[:100]!r} does not exist; this server serves {self.name!r}", "model"
            )
