"""Text drawn from a checkpoint."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_core.model import GPT, Cache, Edits, batch_of, forward

BATCH_TOKENS = 8192  # drawn side by side
PILOTS = 32  # windows from which the distribution of first tokens is estimated


@torch.no_grad()
def generate(
    model: GPT,
    prompt: Int[Tensor, "batch pos"],
    new: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    seed: int = 0,
    use_cache: bool = True,
    edits: Edits | None = None,
) -> Int[Tensor, "batch pos_plus_new"]:
    """Continues each prompt by `new` sampled tokens.

    Within the context, keys and values are cached and each token is read once. Beyond it the window slides, every
    position moves, and the last `context` tokens are read anew for each token.

    Args:
        model: the weights.
        prompt: at least one token a row.
        new: how many tokens to add.
        temperature: divides the logits; 0 takes the likeliest token.
        top_k: sample from the k likeliest only.
        seed: of the sampling.
        use_cache: False reads the whole window for every token, for comparison.
        edits: what is changed in every forward pass; they see whole windows, so no token is read from the cache.

    Raises:
        ValueError: an empty prompt, a negative temperature, or a top_k below 1.
    """
    if prompt.shape[1] < 1:
        raise ValueError("the prompt is empty; give at least one token to start from")
    if temperature < 0 or (top_k is not None and top_k < 1):
        raise ValueError(f"temperature {temperature} and top_k {top_k}: expected 0 or more, and 1 or more")
    context = model.config.context
    generator = torch.Generator().manual_seed(seed)
    room = prompt.shape[1] + new
    cache = Cache.empty(model.config, len(prompt), room) if use_cache and not edits else None
    tokens = prompt
    for _ in range(new):
        if cache is not None and tokens.shape[1] <= context:
            logits = forward(model, tokens[:, cache.length :], cache=cache).logits
        else:
            logits = forward(model, tokens[:, -context:], edits=edits).logits
        tokens = torch.cat([tokens, _sample(logits[:, -1], temperature, top_k, generator)], dim=1)
    return tokens


@torch.no_grad()
def first_token_distribution(model: GPT, seed: int, length: int | None = None) -> Float[Tensor, "d_vocab"]:
    """What this checkpoint writes in the long run: its mean prediction in the second half of windows begun uniformly.

    Own samples draw their first token from it, because a model says nothing of how a text begins. Windows have `length`
    tokens, the context by default.
    """
    config, length = model.config, length or model.config.context
    begun = torch.randint(config.d_vocab, (PILOTS, 1), generator=torch.Generator().manual_seed(seed))
    pilots = generate(model, begun, length - 1, seed=seed)
    parts = pilots.split(batch_of(config, length))
    shares = [forward(model, part).logits[:, length // 2 :].softmax(-1).sum((0, 1)) for part in parts]
    return torch.stack(shares).sum(0) / (len(pilots) * (length - length // 2))


@torch.no_grad()
def own_windows(
    model: GPT, count: int, seed: int, progress: Callable[[float], None] | None = None, length: int | None = None
) -> Int[Tensor, "window pos_plus_1"]:
    """Windows of `length` + 1 tokens, by default of the context's, each drawn from scratch at temperature 1 without top-k.

    The first token comes from `first_token_distribution`, every other from the model given all before it in the window;
    the last is a target only. Under its own samples a model's mean loss is its entropy, and the loss that an ablation
    adds is, in expectation, the KL divergence from the intact to the ablated model.
    """
    generator, length = torch.Generator().manual_seed(seed), length or model.config.context
    first = torch.multinomial(
        first_token_distribution(model, seed, length), count, replacement=True, generator=generator
    )
    parts = []
    batch = max(1, BATCH_TOKENS // length)
    for done, prompt in enumerate(first[:, None].split(batch)):
        parts.append(generate(model, prompt, length, seed=seed + 1 + done))
        if progress:
            progress(min(1.0, (done + 1) * batch / count))
    return torch.cat(parts)


def _sample(logits: Tensor, temperature: float, top_k: int | None, generator: torch.Generator) -> Tensor:
    """One token a row. [batch 1]"""
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    if top_k is not None and top_k < logits.shape[-1]:
        least = logits.topk(top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    return torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)
