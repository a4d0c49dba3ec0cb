"""What a model of GPT-2 small's shape costs: random weights, read from a file, on the windows that the app reads of it.

Every step runs in this process; the memory is its largest so far, the seconds are of one run.
"""

import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import safetensors.torch
import torch

from interp_core import ablation, activations, atlas, checkpoints, copying, samples, unsaid
from interp_core.copying import Protocol
from interp_core.model import GPT, ModelConfig, token_losses

T = TypeVar("T")
SHAPE = ModelConfig(50_257, 1024, 768, 12, 12, 64, 3072, "gelu_tanh", qkv_bias=True, tied_head=True)
WINDOWS, LENGTH, SEQUENCES = 8, 64, 50


def run() -> None:
    """Prints seconds and memory of every step."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gpt2.safetensors"
        safetensors.torch.save_file(_as_gpt2(GPT(SHAPE)), path)
        print(
            f"\nA model of {SHAPE.layers} × {SHAPE.heads} heads, {SHAPE.d_vocab:,} tokens: seconds, and memory so far"
        )
        checkpoint = _step("read the file, ask for nothing", lambda: checkpoints.load(path, answers={"heads": 12}))
    model = checkpoint.model
    print(f"  {model.count():,} parameters")
    windows = torch.randint(SHAPE.d_vocab, (WINDOWS, LENGTH + 1), generator=torch.Generator().manual_seed(0))
    _step("losses of 512 tokens", lambda: token_losses(model, windows))
    _step("the atlas of 144 heads", lambda: atlas.head_atlas(model, windows))
    _step("an untrained model of its shape", lambda: atlas.head_atlas(GPT(SHAPE, 1), windows))
    _step("32 windows of its own samples", lambda: samples.own_windows(model, 32, 0, length=LENGTH))
    first = ablation.parts(SHAPE)[:14]
    _step("the first layer's 14 parts taken away", lambda: ablation.sweep(model, windows, ablated=first))
    _step("copying, 50 sequences in three contexts", lambda: copying.measure(model, Protocol(32, 2, SEQUENCES, 0)))
    _step("activations of 2,048 tokens", lambda: activations.gather(model, windows.repeat(4, 1), ["resid_post.6"]))
    _step("the loss under 16 numbers of heads", lambda: unsaid.effects(model, "heads", windows))


def _step(name: str, work: Callable[[], T]) -> T:
    begun = time.perf_counter()
    found = work()
    seconds, kilobytes = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"  {name:<44} {seconds:7.1f} s  {kilobytes / 1e6:5.2f} GB", flush=True)
    return found


def _as_gpt2(model: GPT) -> dict[str, torch.Tensor]:
    """Under Hugging Face's names, in Conv1D's orientation."""
    ours = model.state_dict()
    theirs = {"wte.weight": ours["tok.weight"], "wpe.weight": ours["pos.weight"]}
    for kind in ("weight", "bias"):
        theirs[f"ln_f.{kind}"] = ours[f"lnf.{kind}"]
        for layer in range(model.config.layers):
            fused = torch.cat([ours[f"blocks.{layer}.attn.{name}.{kind}"] for name in ("query", "key", "value")])
            parts = {
                "attn.c_attn": fused,
                "attn.c_proj": ours[f"blocks.{layer}.attn.proj.{kind}"],
                "mlp.c_fc": ours[f"blocks.{layer}.mlp.fc.{kind}"],
                "mlp.c_proj": ours[f"blocks.{layer}.mlp.proj.{kind}"],
                "ln_1": ours[f"blocks.{layer}.ln1.{kind}"],
                "ln_2": ours[f"blocks.{layer}.ln2.{kind}"],
            }
            theirs |= {
                f"h.{layer}.{name}.{kind}": value.T.contiguous() for name, value in parts.items() if value.ndim == 2
            }
            theirs |= {f"h.{layer}.{name}.{kind}": value for name, value in parts.items() if value.ndim == 1}
    return theirs
