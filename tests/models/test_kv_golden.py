"""KV memory of public configs, each number worked out by hand beside it (2-byte KV, states of 4).

For K and V of one width: 2 x layers x KV heads x head size x 2 bytes.
"""

from __future__ import annotations

from typing import Any

import pytest

from octavo.base.errors import ModelError
from octavo.models.kv_groups import kv_bytes_per_token, kv_groups

Row = tuple[str, int, int | None, int, int]  # kind, layers, window, bytes a token, state bytes

GOLDEN: dict[str, tuple[dict[str, Any], list[Row]]] = {
    "Qwen2.5-72B, grouped": (
        {
            "model_type": "qwen2",
            "num_hidden_layers": 80,
            "hidden_size": 8192,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "sliding_window": 131072,
            "max_window_layers": 70,
            "use_sliding_window": False,
        },
        [("full", 80, None, 327_680, 0)],  # 2*80*8*128*2
    ),
    "Llama-2-7B, one KV head per head": (
        {
            "model_type": "llama",
            "num_hidden_layers": 32,
            "hidden_size": 4096,
            "num_attention_heads": 32,
        },
        [("full", 32, None, 524_288, 0)],  # 2*32*32*128*2
    ),
    "Falcon-7B, one KV head": (
        {
            "model_type": "falcon",
            "num_hidden_layers": 32,
            "hidden_size": 4544,
            "num_attention_heads": 71,
            "num_kv_heads": 71,
            "multi_query": True,
            "new_decoder_architecture": False,
        },
        [("full", 32, None, 8_192, 0)],  # 2*32*1*64*2
    ),
    "Falcon-40B, new architecture": (
        {
            "model_type": "falcon",
            "num_hidden_layers": 60,
            "hidden_size": 8192,
            "num_attention_heads": 128,
            "num_kv_heads": 8,
            "multi_query": True,
            "new_decoder_architecture": True,
        },
        [("full", 60, None, 122_880, 0)],  # 2*60*8*64*2
    ),
    "GPT-2, older names": (
        {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12},
        [("full", 12, None, 36_864, 0)],  # 2*12*12*64*2
    ),
    "DeepSeek-V3, latent, experts": (
        {
            "model_type": "deepseek_v3",
            "num_hidden_layers": 61,
            "hidden_size": 7168,
            "num_attention_heads": 128,
            "num_key_value_heads": 128,
            "kv_lora_rank": 512,
            "q_lora_rank": 1536,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "n_routed_experts": 256,
        },
        [("full", 61, None, 70_272, 0)],  # 61*(512+64)*2: one latent, not two
    ),
    "Mixtral-8x7B, experts": (
        {
            "model_type": "mixtral",
            "num_hidden_layers": 32,
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "num_local_experts": 8,
            "sliding_window": None,
        },
        [("full", 32, None, 131_072, 0)],  # 2*32*8*128*2
    ),
    "Mistral-7B-v0.1, all windows": (
        {
            "model_type": "mistral",
            "num_hidden_layers": 32,
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "sliding_window": 4096,
        },
        [("window", 32, 4096, 131_072, 0)],  # 2*32*8*128*2
    ),
    "Gemma-2-9B, every other layer a window": (
        {
            "model_type": "gemma2",
            "num_hidden_layers": 42,
            "hidden_size": 3584,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 256,
            "sliding_window": 4096,
        },
        [
            ("window", 21, 4096, 172_032, 0),  # 2*21*8*256*2
            ("full", 21, None, 172_032, 0),
        ],
    ),
    "Gemma-3-4B, five windows to one, fields left out": (
        {
            "model_type": "gemma3",
            "text_config": {
                "model_type": "gemma3_text",
                "hidden_size": 2560,
                "num_hidden_layers": 34,
                "sliding_window": 1024,
            },
        },
        [
            ("window", 29, 1024, 118_784, 0),  # 2*29*4*256*2
            ("full", 5, None, 20_480, 0),  # 2*5*4*256*2: layers 5, 11, 17, 23 and 29
        ],
    ),
    "gpt-oss-20b, windows listed, experts": (
        {
            "model_type": "gpt_oss",
            "num_hidden_layers": 24,
            "hidden_size": 2880,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "num_local_experts": 32,
            "sliding_window": 128,
            "layer_types": ["sliding_attention", "full_attention"] * 12,
        },
        [
            ("window", 12, 128, 24_576, 0),  # 2*12*8*64*2
            ("full", 12, None, 24_576, 0),
        ],
    ),
    "EXAONE-4.0-32B, a pattern of letters": (
        {
            "model_type": "exaone4",
            "num_hidden_layers": 64,
            "hidden_size": 5120,
            "num_attention_heads": 40,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "sliding_window": 4096,
            "sliding_window_pattern": "LLLG",
        },
        [
            ("window", 48, 4096, 196_608, 0),  # 2*48*8*128*2
            ("full", 16, None, 65_536, 0),  # 2*16*8*128*2
        ],
    ),
    "Llama-4-Scout, chunks, experts": (
        {
            "model_type": "llama4",
            "text_config": {
                "model_type": "llama4_text",
                "num_hidden_layers": 48,
                "hidden_size": 5120,
                "num_attention_heads": 40,
                "num_key_value_heads": 8,
                "head_dim": 128,
                "attention_chunk_size": 8192,
                "no_rope_layers": [],
                "num_local_experts": 16,
            },
        },
        [
            ("chunked", 36, 8192, 147_456, 0),  # 2*36*8*128*2
            ("full", 12, None, 49_152, 0),  # 2*12*8*128*2
        ],
    ),
    "Gemma-3n-E4B, the last 15 of 35 layers share": (
        {
            "model_type": "gemma3n",
            "text_config": {
                "model_type": "gemma3n_text",
                "num_hidden_layers": 35,
                "hidden_size": 2048,
                "num_attention_heads": 8,
                "num_key_value_heads": 2,
                "head_dim": 256,
                "sliding_window": 512,
                "num_kv_shared_layers": 15,
                "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7,
            },
        },
        [
            ("window", 16, 512, 32_768, 0),  # 2*16*2*256*2: of the first 20 layers
            ("full", 4, None, 8_192, 0),  # 2*4*2*256*2
        ],
    ),
    "MiMo-V2-Flash, K wider than V, windows with more heads": (
        {
            "model_type": "mimo_v2_flash",
            "num_hidden_layers": 48,
            "hidden_size": 4096,
            "num_attention_heads": 64,
            "num_key_value_heads": 4,
            "head_dim": 192,
            "v_head_dim": 128,
            "swa_num_key_value_heads": 8,
            "swa_head_dim": 192,
            "swa_v_head_dim": 128,
            "sliding_window": 128,
            "hybrid_layer_pattern": [0, 1, 1, 1, 1, 0] + [1, 1, 1, 1, 1, 0] * 7,
        },
        [
            ("full", 9, None, 23_040, 0),  # 9*4*(192+128)*2
            ("window", 39, 128, 199_680, 0),  # 39*8*(192+128)*2
        ],
    ),
    "Jamba-v0.1, attention in every eighth layer, Mamba, experts": (
        {
            "model_type": "jamba",
            "num_hidden_layers": 32,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "attn_layer_period": 8,
            "attn_layer_offset": 4,
            "mamba_expand": 2,
            "mamba_d_state": 16,
            "mamba_d_conv": 4,
            "num_experts": 16,
        },
        [
            # inner 8192: state 8192*16*4 = 524,288; convolution 8192*3*4 = 98,304; times 28
            ("state", 28, None, 0, 17_432_576),
            ("full", 4, None, 16_384, 0),  # 2*4*8*128*2
        ],
    ),
    "Mamba2-2.7B, states only": (
        {
            "model_type": "mamba2",
            "num_hidden_layers": 64,
            "hidden_size": 2560,
            "num_heads": 80,
            "head_dim": 64,
            "state_size": 128,
            "n_groups": 1,
            "conv_kernel": 4,
            "expand": 2,
        },
        # state 80*64*128*4 = 2,621,440; convolution (5120+2*1*128)*3*4 = 64,512; times 64
        [("state", 64, None, 0, 171_900_928)],
    ),
    "Falcon-Mamba-7B, Mamba-1 with its own inner size": (
        {
            "model_type": "falcon_mamba",
            "num_hidden_layers": 64,
            "hidden_size": 4096,
            "intermediate_size": 8192,
            "expand": 16,
            "state_size": 16,
            "conv_kernel": 4,
        },
        [("state", 64, None, 0, 39_845_888)],  # (524,288 + 98,304) * 64
    ),
    "Qwen3-Next-80B-A3B, delta nets, experts": (
        {
            "model_type": "qwen3_next",
            "num_hidden_layers": 48,
            "hidden_size": 2048,
            "num_attention_heads": 16,
            "num_key_value_heads": 2,
            "head_dim": 256,
            "full_attention_interval": 4,
            "linear_num_key_heads": 16,
            "linear_num_value_heads": 32,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "linear_conv_kernel_dim": 4,
            "num_experts": 512,
        },
        [
            # state 32*128*128*4 = 2,097,152; convolution (2*2048+4096)*3*4 = 98,304; times 36
            ("state", 36, None, 0, 79_036_416),
            ("full", 12, None, 24_576, 0),  # 2*12*2*256*2
        ],
    ),
    "Kimi-Linear-48B-A3B, latent and delta attention": (
        {
            "model_type": "kimi_linear",
            "num_hidden_layers": 27,
            "hidden_size": 2304,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "kv_lora_rank": 512,
            "qk_rope_head_dim": 64,
            "linear_attn_config": {
                "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
                "head_dim": 128,
                "num_heads": 32,
                "short_conv_kernel_size": 4,
            },
        },
        [
            # state 32*128*128*4 = 2,097,152; convolutions 3*4096*3*4 = 147,456; times 20
            ("state", 20, None, 0, 44_892_160),
            ("full", 7, None, 8_064, 0),  # 7*(512+64)*2
        ],
    ),
    "Nemotron-H-8B, a string of letters, Mamba-2": (
        {
            "model_type": "nemotron_h",
            "num_hidden_layers": 52,
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "attention_head_dim": 128,
            "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
            "mamba_num_heads": 128,
            "mamba_head_dim": 64,
            "ssm_state_size": 128,
            "n_groups": 8,
            "conv_kernel": 4,
        },
        [
            # state 128*64*128*4 = 4,194,304; convolution (8192+2*8*128)*3*4 = 122,880; times 24
            ("state", 24, None, 0, 103_612_416),
            ("full", 4, None, 16_384, 0),  # 2*4*8*128*2
        ],
    ),
    "LFM2-1.2B, short convolutions": (
        {
            "model_type": "lfm2",
            "num_hidden_layers": 16,
            "hidden_size": 2048,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "full_attn_idxs": [2, 5, 8, 10, 12, 14],
            "conv_L_cache": 3,
        },
        [
            ("state", 10, None, 0, 163_840),  # 10*2048*(3-1)*4
            ("full", 6, None, 12_288, 0),  # 2*6*8*64*2
        ],
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name: str) -> None:
    config, rows = GOLDEN[name]
    groups = kv_groups(config, "bfloat16")
    found = [(g.kind, len(g.layers), g.window, g.bytes_per_token, g.state_bytes) for g in groups]
    assert found == rows


@pytest.mark.parametrize("name", GOLDEN)
def test_wider_numbers_take_twice_the_kv(name: str) -> None:
    config, _ = GOLDEN[name]
    narrow, wide = kv_groups(config, "bfloat16"), kv_groups(config, "float32")
    assert kv_bytes_per_token(wide) == 2 * kv_bytes_per_token(narrow)


INT8 = {  # bytes a token of each group: a byte for each number, 4 for the scale of K and of V
    "Qwen2.5-72B, grouped": [168_960],  # 2*80*8*(128+4)
    "Gemma-3-4B, five windows to one, fields left out": [60_320, 10_400],  # 2*(29|5)*4*(256+4)
    # 9*4*(192+128+8), 39*8*(192+128+8)
    "MiMo-V2-Flash, K wider than V, windows with more heads": [11_808, 102_336],
}


@pytest.mark.parametrize("name", INT8)
def test_scales_are_counted(name: str) -> None:
    groups = kv_groups(GOLDEN[name][0], "int8")
    assert [group.bytes_per_token for group in groups] == INT8[name]


def test_latents_have_no_scales() -> None:
    with pytest.raises(ModelError, match="int8 has no form for latents"):
        kv_groups(GOLDEN["DeepSeek-V3, latent, experts"][0], "int8")


def test_states_are_floats_beside_int8() -> None:
    config = GOLDEN["Jamba-v0.1, attention in every eighth layer, Mamba, experts"][0]
    floats, codes = (kv_groups(config, kv_dtype) for kv_dtype in ("float32", "int8"))
    (states,) = (group for group in floats if group.is_state)
    assert states in codes
    (full,) = (group for group in codes if not group.is_state)
    assert full.bytes_per_token == 4 * 2 * 8 * (128 + 4)


def test_layers_are_told_apart() -> None:
    config = GOLDEN["Gemma-3-4B, five windows to one, fields left out"][0]
    window, full = kv_groups(config, "bfloat16")
    assert full.layers == (5, 11, 17, 23, 29)
    assert sorted(window.layers + full.layers) == list(range(34))


def test_attention_and_state_in_one_layer() -> None:
    config = {
        "model_type": "falcon_h1",
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "mamba_d_ssm": 32,
        "mamba_n_heads": 4,
        "mamba_d_head": "auto",
        "mamba_d_state": 8,
    }
    full, state = kv_groups(config, "bfloat16")
    assert full.layers == state.layers == (0, 1)
    assert full.bytes_per_token == 2 * 2 * 2 * 16 * 2
    assert state.state_bytes == 2 * 4 * (32 * 8 + (32 + 2 * 8) * 3)


def test_a_number_of_heads_for_each_layer() -> None:
    config = {
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "num_kv_heads": [1, 4],
        "head_dim": 16,
    }
    assert kv_groups(config, "bfloat16")[0].bytes_per_token == 2 * (1 + 4) * 16 * 2


def test_cross_layer_sharing() -> None:
    config = {
        "num_hidden_layers": 4,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "use_cla": True,
        "cla_share_factor": 2,
    }
    assert kv_groups(config, "bfloat16")[0].layers == (0, 2)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"block_types": ["recurrent", "attention"]}, "block_types"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder"),
        ({"layer_types": ["linear_attention"] * 2}, "state layers of model_type 'odd'"),
        ({"layer_types": ["sliding_attention"] * 2}, "sliding_window is missing"),
        ({"layer_types": ["full_attention"]}, "2 layer types"),
        ({"layer_types": 3}, "2 layer types"),
        ({"layer_types": [[], []]}, "layer type"),
        ({"num_key_value_heads": -1}, "num_key_value_heads"),
        ({"num_attention_heads": None}, "num_attention_heads is missing"),
        ({"kv_lora_rank": 512}, "qk_rope_head_dim is missing"),
    ],
)
def test_refused_by_name(change: dict[str, Any], word: str) -> None:
    config = {"model_type": "odd", "num_hidden_layers": 2, "hidden_size": 64}
    with pytest.raises(ModelError, match=word):
        kv_groups({**config, "num_attention_heads": 4, **change}, "bfloat16")


JUNK: list[Any] = ["x", [], {}, [None], -1, 0, 1.5, None, True]


@pytest.mark.parametrize("name", GOLDEN)
def test_junk_in_any_field_is_a_model_error_or_read(name: str) -> None:
    config, _ = GOLDEN[name]
    inner = config.get("text_config", config)
    extra = {"max_window_layers", "num_kv_shared_layers", "no_rope_layers", "index_head_dim"}
    for field in inner.keys() | extra:
        for junk in JUNK:
            try:
                groups = kv_groups({**inner, field: junk}, "bfloat16")
            except ModelError:
                continue
            assert all(g.bytes_per_token > 0 or g.state_bytes > 0 for g in groups), (field, junk)
