"""Families that are known by their keys and refused by name: reading them approximately would give wrong numbers."""

import re
from collections.abc import Mapping

from torch import Tensor

# A pattern that some key has, what the file is, and what reading it would need.
REFUSED = (
    (r"\.(qweight|SCB|quant_state|absmax)|_packed$", "a quantised model", "its weights in full precision"),
    (r"lora_[AB]\b|lora_(down|up)", "a low-rank adapter, not a model", "the adapter merged into its base model"),
    (r"attn\.attention\.q_proj", "GPT-Neo (TinyStories)", "unscaled scores, and layers that look 256 tokens back only"),
    (r"attention\.query_key_value", "GPT-NeoX (Pythia)", "rotary positions, and attention beside the MLP"),
    (r"self_attention\.query_key_value", "BLOOM or Falcon", "positions that act on the scores"),
    (r"mlp\.gate_proj|feed_forward\.w[123]\.|block_sparse_moe", "the Llama family", "rotary positions, RMSNorm and gated MLPs"),
    (r"attn\.c_q\.weight", "nanochat", "rotary positions, norms of queries and keys, and a squared ReLU"),
    (r"attn_layers\.layers\.", "x-transformers", "its options: heads of width 64 whatever the model's, scaled positions"),
    (r"W_gate\b", "a TransformerLens model with gated MLPs", "gated MLPs"),
    (r"decoder\.layers\.\d+\.self_attn\.k_proj", "OPT or BART", "positions that begin at two, or an encoder"),
    (r"self_attn\.in_proj_weight", "PyTorch's own nn.Transformer layers", "to know where norms stand, and which mask was used"),
    (r"embeddings\.word_embeddings|attention\.self\.query", "BERT", "attention in both directions"),
    (r"SelfAttention\.q\.weight|EncDecAttention", "T5", "an encoder, and relative positions"),
    (r"mixer\.(A_log|D|in_proj|conv1d)|\bssm\b", "Mamba", "a recurrence in place of attention"),
    (r"time_(decay|mix)|\.att\.receptance", "RWKV", "a recurrence in place of attention"),
    (r"weight_(ih|hh)_l\d", "a recurrent network (LSTM, GRU)", "a recurrence in place of attention"),
    (r"crossattention\.", "an encoder-decoder model", "attention to an encoder"),
)  # fmt: skip


def refusal(tensors: Mapping[str, Tensor]) -> tuple[str, str] | None:
    """What the file is and what reading it would need, if it is of a family that is refused by name."""
    table = tensors.get("token_embedding_table.weight")
    if table is not None and len(tensors) == 1:
        return "the lecture's bigram model", "attention: it looks at one token only, so there is nothing to take apart"
    if "pos_emb" in tensors and any(".attn.key.weight" in key for key in tensors):
        return (
            "minGPT before June 2022",
            "its config's number of heads: load it in today's minGPT and save it from there",
        )
    if "out_head.bias" in tensors and any(key.startswith("trf_blocks.") for key in tensors):
        return "a classifier of LLMs-from-scratch", "an unembedding that predicts tokens, not classes"
    for pattern, name, needed in REFUSED:
        if any(re.search(pattern, key) for key in tensors):
            return name, needed
    return None
