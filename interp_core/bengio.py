"""The neural language model of Bengio et al. 2003: the step between counting and attention.

The embeddings of the last k tokens, side by side, go through one hidden layer of tanh to the scores of the next token; a
direct connection goes past the hidden layer ("A neural probabilistic language model", section 2, with W ≠ 0).

    python -m interp_core.bengio --text tiny-shakespeare --out bengio.safetensors
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from interp_core import corpora, files, run_files
from interp_core.tokenizers import CharTokenizer

CONTEXT = 3  # tokens that it looks back
WIDTH, HIDDEN = 32, 384  # of an embedding, of the hidden layer
STEPS, BATCH, RATE = 4000, 1024, 1e-2


@dataclass(frozen=True, eq=False)
class Bengio:
    """The weights, by the names of the paper."""

    C: Float[Tensor, "d_vocab width"]  # embeddings
    H: Float[Tensor, "k_width hidden"]
    d: Float[Tensor, "hidden"]
    U: Float[Tensor, "hidden d_vocab"]
    b: Float[Tensor, "d_vocab"]
    W: Float[Tensor, "k_width d_vocab"]  # the direct connection

    @property
    def context(self) -> int:
        """How many tokens it looks back."""
        return self.H.shape[0] // self.C.shape[1]

    def count(self) -> int:
        """Number of parameters."""
        return sum(weight.numel() for weight in vars(self).values())


def new(d_vocab: int, seed: int = 0, context: int = CONTEXT, width: int = WIDTH, hidden: int = HIDDEN) -> Bengio:
    """An untrained model: embeddings of unit variance, each matrix scaled by the root of its inputs, the outputs zero."""
    generator, inputs = torch.Generator().manual_seed(seed), context * width
    return Bengio(
        C=torch.randn(d_vocab, width, generator=generator),
        H=torch.randn(inputs, hidden, generator=generator) / inputs**0.5,
        d=torch.zeros(hidden),
        U=torch.zeros(hidden, d_vocab),
        b=torch.zeros(d_vocab),
        W=torch.zeros(inputs, d_vocab),
    )


def logits(model: Bengio, contexts: Int[Tensor, "*batch context"]) -> Float[Tensor, "*batch d_vocab"]:
    """Scores of the token after each context, the nearest token last."""
    x = F.embedding(contexts, model.C).flatten(-2)  # unlike C[contexts], adds gradients in a fixed order
    return torch.tanh(x @ model.H + model.d) @ model.U + x @ model.W + model.b


def train(
    tokens: Int[Tensor, "token"], d_vocab: int, steps: int = STEPS, seed: int = 0, every: int = 100
) -> Iterator[tuple[int, float, Bengio]]:
    """Trains by AdamW on places drawn at random; the learning rate falls linearly to zero.

    Yields step, mean loss since the last (nats) and the model, which changes as training goes on.
    """
    model, generator = new(d_vocab, seed), torch.Generator().manual_seed(seed)
    weights = list(vars(model).values())
    optimizer = torch.optim.AdamW(weights, lr=RATE, betas=(0.9, 0.99), weight_decay=0.01)
    places, total = torch.arange(-model.context, 1), 0.0
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = RATE * (1 - step / steps)
        at = torch.randint(model.context, len(tokens), (BATCH, 1), generator=generator)
        windows = tokens[at + places]  # [batch k+1]
        for weight in weights:
            weight.requires_grad_(True)
        loss = F.cross_entropy(logits(model, windows[:, :-1]), windows[:, -1])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        for weight in weights:
            weight.requires_grad_(False)
        total += loss.item()
        if (step + 1) % every == 0 or step + 1 == steps:
            yield step + 1, total / ((step % every) + 1), model
            total = 0.0


@torch.no_grad()
def losses(model: Bengio, windows: Int[Tensor, "window pos"]) -> Float[Tensor, "window target"]:
    """Loss of every token of each window but its first k, given the k before it. Nats."""
    contexts = windows.unfold(1, model.context + 1, 1)  # [window target k+1]
    parts = [
        F.cross_entropy(logits(model, part[..., :-1]).flatten(0, 1), part[..., -1].flatten(), reduction="none")
        for part in contexts.split(64)
    ]
    return torch.cat(parts).view(contexts.shape[:2])


def write(path: Path, model: Bengio, papers: dict[str, object]) -> None:
    """Writes the weights with their papers in the file's header, at once or not at all."""
    tensors = {name: weight.contiguous() for name, weight in vars(model).items()}
    files.write(path, save(tensors, {"papers": json.dumps({"model": "bengio-2003", **papers})}))


def load(path: Path) -> tuple[Bengio, dict[str, object]]:
    """Reads a file of `write`.

    Raises:
        ValueError: another file.
    """
    try:
        with safe_open(path, "pt") as file:
            papers = json.loads((file.metadata() or {}).get("papers", "{}"))
            names = {"C", "H", "d", "U", "b", "W"}
            if papers.get("model") != "bengio-2003" or set(file.keys()) != names:
                raise ValueError(f"{path.name} holds no Bengio model: train one anew.")
            return Bengio(**{name: file.get_tensor(name) for name in names}), papers
    except SafetensorError as error:
        raise ValueError(f"{path.name} is no safetensors file: train one anew.") from error


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: trains on a named text or a file and writes the weights."""
    parser = argparse.ArgumentParser(description="Train the neural language model of Bengio et al. 2003.")
    parser.add_argument("--text", default="tiny-shakespeare", choices=corpora.NAMES)
    parser.add_argument("--file", type=Path, help="a text of your own in UTF-8, instead of a named one")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=STEPS)
    given = parser.parse_args(arguments)
    begun = time.perf_counter()
    try:
        name = given.text if given.file is None else given.file.name
        characters = corpora.read(name) if given.file is None else corpora.read_file(given.file)
        tokenizer = CharTokenizer.of_text(characters)
        text = corpora.encode(name, characters, tokenizer)
        run_files.begin(given.out, 0)
        for done in train(text.train, tokenizer.size, given.steps):
            step, loss, model = done
            seconds = time.perf_counter() - begun
            run_files.append(given.out, {"step": step, "steps": given.steps, "loss": loss, "seconds": seconds})
        papers = {"text": name, "sha256": text.sha256, "steps": given.steps, "seconds": round(seconds, 1), "loss": loss}
        write(given.out, model, papers)
    except (ValueError, OSError, corpora.TextUnavailable) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
