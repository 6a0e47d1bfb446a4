"""Sizes of recurrent states, and the bytes that one state layer keeps for one sequence.

A state is a matrix that sums up everything seen, and the last `kernel - 1` inputs of a short
convolution. Both are float32, whatever KV is kept in: errors would add up over the whole sequence.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.base.errors import ModelError
from octavo.models.config import Config, integer, section, value

_FLOAT32 = 4  # bytes

_MAMBA2_HEADS = ("mamba_n_heads", "mamba_num_heads", "n_mamba_heads")
_MAMBA2_HEAD_DIM = ("mamba_d_head", "mamba_head_dim", "mamba_headdim")


@dataclass(frozen=True)
class Mamba2Sizes:
    heads: int
    channels: int  # in all heads
    groups: int
    state_size: int
    kernel: int

    @property
    def convolved(self) -> int:
        """Channels of x, B and C."""
        return self.channels + 2 * self.groups * self.state_size


def state_bytes(config: Config) -> int:
    """Bytes of one layer, one sequence.

    Raises:
        ModelError: the kind of state is not understood.
    """
    return sum(_elements(config)) * _FLOAT32


def _elements(config: Config) -> tuple[int, int]:
    """Elements of the matrix and of the convolution's memory."""
    model_type = config.get("model_type")
    if value(config, "linear_key_head_dim") is not None:
        return _gated_delta_net(config)
    kimi = section(config, "linear_attn_config")
    if kimi is not None:
        return _kimi_delta(kimi)
    if value(config, "conv_L_cache") is not None:
        return 0, integer(config, "hidden_size") * (integer(config, "conv_L_cache") - 1)
    if model_type == "mamba2" or value(config, *_MAMBA2_HEADS) is not None:
        return _mamba2(config)
    if value(config, "mamba_d_state", "state_size") is not None:
        return _mamba1(config)
    raise ModelError(f"config: the state layers of model_type {model_type!r} are not understood")


def _mamba1(config: Config) -> tuple[int, int]:
    """Mamba (arXiv 2312.00752): a state vector for each inner channel."""
    channels = mamba1_channels(config)
    return channels * state_size(config), channels * (kernel(config) - 1)


def mamba1_channels(config: Config) -> int:
    if str(config.get("model_type")).endswith("mamba"):  # there it is the mixer's, not an MLP's
        return integer(config, "intermediate_size", default=_expanded(config))
    return _expanded(config)


def _mamba2(config: Config) -> tuple[int, int]:
    """Mamba-2 (arXiv 2405.21060): heads; the convolution runs over x, B and C."""
    sizes = mamba2_sizes(config)
    return sizes.channels * sizes.state_size, sizes.convolved * (sizes.kernel - 1)


def mamba2_sizes(config: Config) -> Mamba2Sizes:
    """A head's size may be "auto".

    Raises:
        ModelError: channels cannot be cut into so many heads, or groups.
    """
    heads = integer(config, *_MAMBA2_HEADS, "num_heads")
    groups = integer(config, "mamba_n_groups", "n_groups", "mamba_ngroups", default=1)
    if value(config, "mamba_d_ssm") is not None:
        channels = integer(config, "mamba_d_ssm")
    elif value(config, *_MAMBA2_HEAD_DIM) not in (None, "auto"):
        channels = integer(config, *_MAMBA2_HEAD_DIM) * heads
    else:
        channels = _expanded(config)
    if channels % heads or channels % groups:
        raise ModelError(f"config: {channels} channels cannot be cut into {heads} state heads")
    return Mamba2Sizes(heads, channels, groups, state_size(config), kernel(config))


def _gated_delta_net(config: Config) -> tuple[int, int]:
    """Gated DeltaNet (arXiv 2412.06464) as in Qwen3-Next: a key by value matrix per value head."""
    key_dim, value_dim = (integer(config, f"linear_{x}_head_dim") for x in ("key", "value"))
    keys = integer(config, "linear_num_key_heads") * key_dim
    values = integer(config, "linear_num_value_heads") * value_dim
    length = integer(config, "linear_conv_kernel_dim", default=4)
    return values * key_dim, (2 * keys + values) * (length - 1)


def _kimi_delta(config: Config) -> tuple[int, int]:
    """Kimi Delta Attention (arXiv 2510.26692): square heads, convolutions over q, k and v."""
    size = integer(config, "head_dim")
    inner = integer(config, "num_heads") * size
    return inner * size, 3 * inner * (integer(config, "short_conv_kernel_size", default=4) - 1)


def _expanded(config: Config) -> int:
    """Channels, where the config says no more than how many times the hidden size they are."""
    return integer(config, "mamba_expand", "expand", default=2) * integer(config, "hidden_size")


def state_size(config: Config) -> int:
    return integer(config, "mamba_d_state", "ssm_state_size", "state_size")


def kernel(config: Config) -> int:
    """Inputs that a convolution sees."""
    return integer(config, "mamba_d_conv", "conv_kernel", default=4)
