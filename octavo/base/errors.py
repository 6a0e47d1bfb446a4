"""Every error Octavo raises on purpose: one tree. `serve` maps it to statuses in one table."""

from __future__ import annotations


class OctavoError(Exception):
    """Root of the tree. The message is one line a user can act on."""


class RequestError(OctavoError):
    """The client's fault: `field` names the part of the request that is wrong."""

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class NotFoundError(RequestError):
    """The request names something that does not exist (a model, a response)."""


class QueueFullError(OctavoError):
    """No room to wait. `retry_after` is in seconds."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class EngineError(OctavoError):
    """The server's fault: a step failed; the request it names is lost, others go on."""


class EngineDeadError(EngineError):
    """The engine process is gone and no request can be answered."""


class ConfigError(OctavoError):
    """The operator's fault: a setting is impossible. Raised before serving begins."""


class CapacityError(ConfigError):
    """The model or its KV cache does not fit; the message names the smallest change that would."""


class ModelError(ConfigError):
    """A model cannot be found, read or understood."""
