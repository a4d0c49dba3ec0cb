"""Keys and shapes of families that are recognised and refused by name."""

import torch
from torch import Tensor

V, T, D, F = 11, 12, 16, 64


def _of(shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    return {key: torch.randn(shape, generator=torch.Generator().manual_seed(0)) for key, shape in shapes.items()}


NEO = {f"transformer.h.0.attn.attention.{name}.weight": (D, D) for name in ("q_proj", "k_proj", "v_proj", "out_proj")}
LLAMA = {f"model.layers.0.self_attn.{name}_proj.weight": (D, D) for name in "qkvo"}
REFUSED: dict[str, tuple[dict[str, Tensor], str]] = {
    "bigram.py": (_of({"token_embedding_table.weight": (V, V)}), "the lecture's bigram model"),
    "TinyStories": (
        _of({"transformer.wte.weight": (V, D), "transformer.wpe.weight": (T, D), **NEO, "lm_head.weight": (V, D)}),
        "GPT-Neo",
    ),
    "minGPT 2020": (
        _of({"tok_emb.weight": (V, D), "pos_emb": (1, T, D), "blocks.0.attn.key.weight": (D, D), "head.weight": (V, D)}),
        "minGPT before June 2022",
    ),
    "x-transformers": (
        _of({"net.token_emb.emb.weight": (V, D), "net.attn_layers.layers.0.1.to_q.weight": (D, D)}),
        "x-transformers",
    ),
    "Pythia": (
        _of({"gpt_neox.embed_in.weight": (V, D), "gpt_neox.layers.0.attention.query_key_value.weight": (3 * D, D),
             "embed_out.weight": (V, D)}),
        "GPT-NeoX",
    ),
    "Llama": (
        _of({"model.embed_tokens.weight": (V, D), **LLAMA, "model.layers.0.mlp.gate_proj.weight": (F, D)}),
        "the Llama family",
    ),
    "nanochat": (
        _of({"transformer.wte.weight": (V, D), "transformer.h.0.attn.c_q.weight": (D, D), "lm_head.weight": (V, D)}),
        "nanochat",
    ),
    "classifier": (
        _of({"tok_emb.weight": (V, D), "trf_blocks.0.att.W_query.weight": (D, D), "out_head.weight": (2, D),
             "out_head.bias": (2,)}),
        "a classifier",
    ),
    "BERT": (_of({"bert.embeddings.word_embeddings.weight": (V, D)}), "BERT"),
    "T5": (_of({"shared.weight": (V, D), "encoder.block.0.layer.0.SelfAttention.q.weight": (D, D)}), "T5"),
    "Mamba": (_of({"backbone.embedding.weight": (V, D), "backbone.layers.0.mixer.A_log": (D, 4)}), "Mamba"),
    "LSTM": (_of({"embedding.weight": (V, D), "lstm.weight_ih_l0": (4 * D, D)}), "a recurrent network"),
    "adapter": (_of({"base_model.model.transformer.h.0.attn.c_attn.lora_A.weight": (4, D)}), "a low-rank adapter"),
    "quantised": (_of({"transformer.h.0.attn.c_attn.qweight": (D, D)}), "a quantised model"),
}  # fmt: skip
LLMC = (20240326).to_bytes(4, "little") + (3).to_bytes(4, "little") + bytes(1016)
