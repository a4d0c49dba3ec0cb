"""State dicts, one layer each, of the families that are refused by name, and a file of llm.c.

Noted as `name:shape` under a prefix: `name` means `name.weight`, `name+` a weight and a bias, `=name` itself.
"""

import struct

import torch
from torch import Tensor

SIZES = {"V": 11, "T": 12, "D": 16, "F": 64, "H": 4, "C": 2, "1": 1, "2": 2, "4": 4}
SIZES |= {
    "K": 8,
    "Q": 48,
    "I": 4 * 64,
    "B": 32,
    "R": 9,
}  # shared keys, stacked qkv, x-transformers' heads, buckets, Mamba
FAMILIES: dict[str, dict[str, str]] = {
    "bigram": {"": "token_embedding_table:VV"},
    "GPT-Neo": {
        "transformer.": "wte:VD wpe:TD ln_f+:D",
        "transformer.h.0.": "ln_1+:D ln_2+:D mlp.c_fc+:FD mlp.c_proj+:DF",
        "transformer.h.0.attn.attention.": "=bias:11TT =masked_bias: k_proj:DD v_proj:DD q_proj:DD out_proj+:DD",
        "": "lm_head:VD",
    },
    "minGPT 2020": {
        "": "=pos_emb:1TD tok_emb:VD ln_f+:D head:VD",
        "blocks.0.": "ln1+:D ln2+:D mlp.0+:FD mlp.2+:DF",
        "blocks.0.attn.": "=mask:11TT key+:DD query+:DD value+:DD proj+:DD",
    },
    "x-transformers": {
        "net.": "token_emb.emb:VD pos_emb.emb:TD to_logits:VD",
        "net.attn_layers.": "=layers.0.0.0.gamma:D =layers.1.0.0.gamma:D =final_norm.gamma:D",
        "net.attn_layers.layers.0.1.": "to_q:ID to_k:ID to_v:ID to_out:DI",
        "net.attn_layers.layers.1.1.": "ff.0.0+:FD ff.2+:DF",
    },
    "GPT-NeoX": {
        "gpt_neox.": "embed_in:VD final_layer_norm+:D",
        "gpt_neox.layers.0.": "input_layernorm+:D post_attention_layernorm+:D",
        "gpt_neox.layers.0.attention.": "query_key_value+:QD dense+:DD",
        "gpt_neox.layers.0.mlp.": "dense_h_to_4h+:FD dense_4h_to_h+:DF",
        "": "embed_out:VD",
    },
    "Llama": {
        "model.": "embed_tokens:VD norm:D",
        "model.layers.0.": "input_layernorm:D post_attention_layernorm:D",
        "model.layers.0.self_attn.": "q_proj:DD k_proj:KD v_proj:KD o_proj:DD",
        "model.layers.0.mlp.": "gate_proj:FD up_proj:FD down_proj:DF",
        "": "lm_head:VD",
    },
    "nanochat": {
        "transformer.": "wte:VD",
        "transformer.h.0.": "attn.c_q:DD attn.c_k:DD attn.c_v:DD attn.c_proj:DD mlp.c_fc:FD mlp.c_proj:DF",
        "": "lm_head:VD",
    },
    "LLMs-from-scratch classifier": {
        "": "tok_emb:VD pos_emb:TD =final_norm.scale:D =final_norm.shift:D out_head+:CD",
        "trf_blocks.0.": "=norm1.scale:D =norm1.shift:D =norm2.scale:D =norm2.shift:D ff.layers.0+:FD ff.layers.2+:DF",
        "trf_blocks.0.att.": "=mask:TT W_query:DD W_key:DD W_value:DD out_proj+:DD",
    },
    "BERT": {
        "bert.embeddings.": "word_embeddings:VD position_embeddings:TD token_type_embeddings:2D LayerNorm+:D",
        "bert.encoder.layer.0.attention.self.": "query+:DD key+:DD value+:DD",
        "bert.encoder.layer.0.attention.output.": "dense+:DD LayerNorm+:D",
        "bert.encoder.layer.0.": "intermediate.dense+:FD output.dense+:DF output.LayerNorm+:D",
        "cls.predictions.": "=bias:V transform.dense+:DD transform.LayerNorm+:D decoder+:VD",
    },
    "T5": {
        "": "shared:VD encoder.embed_tokens:VD decoder.embed_tokens:VD lm_head:VD",
        "encoder.": "final_layer_norm:D block.0.layer.0.layer_norm:D block.0.layer.1.layer_norm:D",
        "encoder.block.0.layer.0.SelfAttention.": "q:DD k:DD v:DD o:DD relative_attention_bias:BH",
        "encoder.block.0.layer.1.DenseReluDense.": "wi:FD wo:DF",
        "decoder.": "final_layer_norm:D",
        "decoder.block.0.": "layer.0.layer_norm:D layer.1.layer_norm:D layer.2.layer_norm:D",
        "decoder.block.0.layer.0.SelfAttention.": "q:DD k:DD v:DD o:DD relative_attention_bias:BH",
        "decoder.block.0.layer.1.EncDecAttention.": "q:DD k:DD v:DD o:DD",
        "decoder.block.0.layer.2.DenseReluDense.": "wi:FD wo:DF",
    },
    "Mamba": {
        "backbone.": "embeddings:VD norm_f:D layers.0.norm:D",
        "backbone.layers.0.mixer.": "=A_log:B4 =D:B conv1d+:B14 in_proj:FD x_proj:RB dt_proj+:B1 out_proj:DB",
        "": "lm_head:VD",
    },
}


def shapes(family: str) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for prefix, notes in FAMILIES[family].items():
        for note in notes.split():
            name, _, letters = note.partition(":")
            shape = tuple(SIZES[letter] for letter in letters)
            key = prefix + name.strip("=+")
            found[key if name[0] == "=" else f"{key}.weight"] = shape
            if name.endswith("+"):
                found[f"{key}.bias"] = shape[:1]
    return found


def state(family: str) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes(family).items()}


REFUSED: dict[str, dict[str, Tensor]] = {family: state(family) for family in FAMILIES}


def llmc_bin(dtype_version: int = 3) -> bytes:
    """A header, then as many parameters as it promises: 4 bytes each in version 3, 2 (bfloat16) in version 5."""
    dtype = {3: torch.float32, 5: torch.bfloat16}[dtype_version]
    context, vocabulary, padded, layers, heads, width = 12, 11, 128, 2, 4, 16
    header = [20240326, dtype_version, context, vocabulary, layers, heads, width, padded]
    attention = (3 * width * width + 3 * width) + (width * width + width)
    mlp = (4 * width * width + 4 * width) + (4 * width * width + width)
    norm = 2 * width
    count = (padded + context) * width + layers * (norm + attention + norm + mlp) + norm
    values = 0.3 * torch.randn(count, generator=torch.Generator().manual_seed(0))
    body = values.to(dtype).view(torch.uint8).numpy().tobytes()
    return struct.pack("<256i", *header, *[0] * 248) + body
