"""What decoders share: embedding, layers of a mixer and a feed-forward part, norm, head."""

from __future__ import annotations

from octavo.base.errors import ModelError
from octavo.models.build import Build, Traits
from octavo.models.config import Config, count, flag, integer, refuse_unknown_mathematics
from octavo.models.kv_groups import kv_groups
from octavo.models.layer_kinds import layer_count
from octavo.models.memory import ITEMSIZE, kv_head_bytes
from octavo.models.rope import scaled_length
from octavo.models.spec import LinearSpec, ModelSpec, ParamSpec


def decoder(family: str, config: Config, kv_dtype: str, traits: Traits) -> ModelSpec:
    """The spec of a decoder whose KV is kept in `kv_dtype`.

    Raises:
        ModelError: a field is missing, impossible, or asks for mathematics not supported.
    """
    refuse_unknown_mathematics(config, traits.understood)
    groups = kv_groups(config, kv_dtype)
    build = Build(config, traits, groups)
    vocab, names = integer(config, "vocab_size"), traits.names
    embedding = ParamSpec(f"{names.embedding}.weight", (vocab, build.hidden))
    tied = flag(config, "tie_word_embeddings")
    spec = ModelSpec(
        family=family,
        vocab_size=vocab,
        hidden_size=build.hidden,
        max_model_len=traits.max_model_len or scaled_length(config),
        embedding=embedding,
        layers=tuple(build.layer(n) for n in range(layer_count(config))),
        norm=build.norm(names.norm, build.hidden),
        head=LinearSpec(
            embedding if tied else ParamSpec("lm_head.weight", (vocab, build.hidden)),
            scale=traits.head_scale,
        ),
        kv_groups=groups,
        eos_token_ids=token_ids(config, "eos_token_id"),
        bos_token_id=next(iter(token_ids(config, "bos_token_id")), None),
        embedding_scale=traits.embedding_scale,
        logit_cap=traits.logit_cap,
        needless=_drafting(config, names.layers),
    )
    _check_kept(spec, kv_dtype)
    return spec


def _drafting(config: Config, layers: str) -> tuple[str, ...]:
    """Layers that draft further tokens follow the last one, or have a name of their own."""
    first, more = layer_count(config), count(config, "num_nextn_predict_layers")
    return ("mtp.*", *(f"{layers}.{n}.*" for n in range(first, first + more)))


def token_ids(config: Config, name: str) -> tuple[int, ...]:
    """A token id, or several, or none, under `name`."""
    found = config.get(name)
    listed = found if isinstance(found, list) else [] if found is None else [found]
    for token in listed:
        if isinstance(token, bool) or not isinstance(token, int) or token < 0:
            raise ModelError(f"config: {name} must be token ids, got {found!r}")
    return tuple(listed)


def _check_kept(spec: ModelSpec, kv_dtype: str) -> None:
    """What is counted must be what the layers built here keep."""
    for group in spec.kv_groups:
        if group.is_state:
            kept = sum(spec.states[n].kept for n in group.layers) * ITEMSIZE["float32"]
            counted = group.state_bytes
        else:
            attends = [spec.attends[n] for n in group.layers]
            kept = sum(
                a.num_kv_heads * kv_head_bytes(kv_dtype, dim)
                for a in attends
                for dim in a.kept_dims
            )
            counted = group.bytes_per_token
        if kept != counted:
            raise ModelError(
                f"config: its KV fields give {counted} bytes for {len(group.layers)} "
                f"{group.name} layers, but they keep {kept}"
            )
