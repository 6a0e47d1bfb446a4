"""The families that Octavo computes itself: by `model_type`, where each is described, and which
models people know it by."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.base.errors import ModelError


@dataclass(frozen=True)
class Family:
    place: str  # module:function, in octavo.models
    models: str


# Types of models that also see or hear, whose answer to text alone is that of the plain decoder in
# them; and of which type that usually is. Of any other such model the decoder is not taken alone:
# PaliGemma, for one, reads a prompt in both directions.
TEXT_PARTS = {
    "gemma3": "gemma3_text",
    "internvl": "qwen2",
    "internvl_chat": "qwen2",
    "lfm2_vl": "lfm2",
    "llama4": "llama4_text",
    "llava": "llama",
    "llava_next": "llama",
    "llava_next_video": "llama",
    "llava_onevision": "qwen2",
    "mistral3": "mistral",
    "qwen2_audio": "qwen2",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "video_llama_3": "qwen2",
    "video_llava": "llama",
    "vipllava": "llama",
    "voxtral": "llama",
}

NATIVE = {
    "bamba": Family("hybrid:bamba", "Bamba"),
    "cohere": Family("cohere:cohere", "Command R"),
    "cohere2": Family("cohere:cohere2", "Command R7B, Command A"),
    "deepseek_v2": Family("deepseek:deepseek_v2", "DeepSeek-V2, V2-Lite"),
    "deepseek_v3": Family("deepseek:deepseek_v3", "DeepSeek-V3, R1"),
    "falcon_h1": Family("hybrid:falcon_h1", "Falcon-H1"),
    "falcon_mamba": Family("mamba:falcon_mamba", "Falcon Mamba"),
    "gemma": Family("gemma:gemma", "Gemma"),
    "gemma2": Family("gemma:gemma2", "Gemma 2"),
    "gemma3_text": Family("gemma:gemma3", "Gemma 3"),
    "glm": Family("glm:glm", "GLM-4-9B"),
    "glm4": Family("glm:glm4", "GLM-4-0414"),
    "glm4_moe": Family("glm:glm4_moe", "GLM-4.5, 4.6"),
    "gpt_oss": Family("gpt_oss:gpt_oss", "gpt-oss"),
    "granite": Family("granite:granite", "Granite 3"),
    "granitemoe": Family("granite:granitemoe", "Granite 3 MoE"),
    "granitemoehybrid": Family("hybrid:granitemoehybrid", "Granite 4"),
    "granitemoeshared": Family("granite:granitemoe", "Granite 3.1 MoE, shared expert"),
    "jamba": Family("hybrid:jamba", "Jamba"),
    "lfm2": Family("lfm2:lfm2", "LFM2"),
    "lfm2_moe": Family("lfm2:lfm2_moe", "LFM2 MoE"),
    "llama": Family("llama:llama", "Llama 2, 3, 3.x, SmolLM2"),
    "llama4_text": Family("llama4:llama4", "Llama 4, text"),
    "mamba": Family("mamba:mamba", "Mamba"),
    "mamba2": Family("mamba:mamba2_family", "Mamba-2, Codestral Mamba"),
    "ministral": Family("llama:ministral", "Ministral"),
    "ministral3": Family("llama:ministral3", "Ministral 3"),
    "mistral": Family("llama:mistral", "Mistral"),
    "mixtral": Family("mixtral:mixtral", "Mixtral"),
    "nemotron_h": Family("nemotron_h:nemotron_h", "Nemotron-H, Nemotron Nano 2 and 3"),
    "olmo": Family("olmo:olmo", "OLMo"),
    "olmo2": Family("olmo:olmo2", "OLMo 2"),
    "olmo3": Family("olmo:olmo3", "OLMo 3"),
    "olmoe": Family("olmo:olmoe", "OLMoE"),
    "phi3": Family("phi:phi3", "Phi-3, 3.5, Phi-4, Phi-4-mini"),
    "qwen2": Family("qwen:qwen2", "Qwen2, Qwen2.5"),
    "qwen2_moe": Family("qwen:qwen2_moe", "Qwen1.5-MoE, Qwen2-MoE"),
    "qwen3": Family("qwen:qwen3", "Qwen3"),
    "qwen3_5_moe_text": Family("qwen_delta:qwen3_5_moe", "Qwen3.5 MoE, text"),
    "qwen3_5_text": Family("qwen_delta:qwen3_5", "Qwen3.5, text"),
    "qwen3_moe": Family("qwen:qwen3_moe", "Qwen3 MoE"),
    "qwen3_next": Family("qwen_delta:qwen3_next", "Qwen3-Next"),
    "smollm3": Family("llama:smollm3", "SmolLM3"),
    "stablelm": Family("stablelm:stablelm", "StableLM"),
}


def refuse_unknown_whole(outer: str) -> None:
    """Raises ModelError where the decoder in a model of type `outer` is not to be taken alone."""
    if outer not in TEXT_PARTS:
        raise ModelError(
            f"{outer} reads more than text, and its text decoder is not known to answer the same "
            "by itself"
        )
