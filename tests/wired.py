"""An induction circuit wired by hand, two heads whose every score is known beforehand.

The stream has four parts: which token is here, which position this is, which token came before, which token comes next. In
layer 0 a head looks one position back and writes the token there into *before*. In layer 1 a head looks for the position
whose *before* is the token here and writes the token there into *next*, which is what the unembedding reads.
"""

import torch

from interp_core.model import GPT, ModelConfig

D_VOCAB, CONTEXT, SHARP = 13, 20, 40.0
HERE, WHERE = slice(0, D_VOCAB), slice(D_VOCAB, D_VOCAB + CONTEXT)
BEFORE = slice(WHERE.stop, WHERE.stop + D_VOCAB)
NEXT = slice(BEFORE.stop, BEFORE.stop + D_VOCAB)
PREVIOUS_HEAD, MATCHING_HEAD, IDLE_HEAD = "L0H0", "L1H1", "L0H1"
CONFIG = ModelConfig(
    d_vocab=D_VOCAB, context=CONTEXT, d_model=NEXT.stop, heads=2, layers=2, d_head=CONTEXT, d_mlp=0, norm="none",
    out_bias=False, score_scale=1.0,
)  # fmt: skip


def wired_induction(loud: float = 10.0) -> GPT:
    """The model; `loud` is the logit that the copied token gets."""
    model = GPT(CONFIG, None)
    for parameter in model.parameters():
        parameter.zero_()
    model.tok.weight[:, HERE] = torch.eye(D_VOCAB)
    model.pos.weight[:, WHERE] = torch.eye(CONTEXT)
    _wire(model, 0, 0, WHERE, WHERE, HERE, BEFORE, shift=1)
    _wire(model, 1, 1, HERE, BEFORE, HERE, NEXT)
    model.head.weight[:, NEXT] = loud * torch.eye(D_VOCAB)
    return model


def _wire(
    model: GPT, layer: int, head: int, query: slice, key: slice, value: slice, out: slice, shift: int = 0
) -> None:
    rows, attn = slice(head * CONTEXT, (head + 1) * CONTEXT), model.block(layer).attn
    size, width = query.stop - query.start, value.stop - value.start
    attn.query.weight[rows, query][:size] = SHARP * torch.eye(size).roll(shift, 1)  # position i asks for i - shift
    attn.key.weight[rows, key][:size] = torch.eye(size)
    attn.value.weight[rows, value][:width] = torch.eye(width)
    attn.proj.weight[out, rows][:, :width] = torch.eye(width)
