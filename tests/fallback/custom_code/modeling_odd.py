"""A decoder that no version of Transformers knows: squared ReLU, no norm but a last one."""

import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS


class OddConfig(PreTrainedConfig):
    model_type = "odd"
    vocab_size: int = 128
    hidden_size: int = 64
    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    max_position_embeddings: int = 96


def eager(module, query, key, value, attention_mask, scaling, **kwargs):
    length = query.shape[2]
    scores = query @ key.mT * scaling
    seen = torch.ones(length, length, dtype=torch.bool, device=query.device).tril()
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    return (weights @ value).transpose(1, 2), None


class OddLayer(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.config, self.layer_idx = config, layer_idx
        self.heads = config.num_attention_heads
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.out = nn.Linear(config.hidden_size, config.hidden_size)
        self.up = nn.Linear(config.hidden_size, 2 * config.hidden_size)
        self.down = nn.Linear(2 * config.hidden_size, config.hidden_size)

    def forward(self, x):
        split = self.qkv(x).view(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager)
        mixed, _ = attend(self, *split, None, scaling=split.shape[-1] ** -0.5)
        x = x + self.out(mixed.flatten(2)) / 4
        return x + self.down(self.up(x).relu().square()) / 16


class OddForCausalLM(PreTrainedModel, GenerationMixin):
    config_class = OddConfig
    _supports_attention_backend = True

    def __init__(self, config):
        super().__init__(config)
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.places = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.layers = nn.ModuleList(OddLayer(config, i) for i in range(config.num_hidden_layers))
        self.norm = nn.LayerNorm(config.hidden_size)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_output_embeddings(self):
        return self.lm_head

    def forward(self, input_ids, position_ids=None, use_cache=None, **kwargs):
        if position_ids is None:
            position_ids = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
        x = self.embed(input_ids) + self.places(position_ids)
        for layer in self.layers:
            x = layer(x)
        return CausalLMOutputWithPast(logits=self.lm_head(self.norm(x)))
