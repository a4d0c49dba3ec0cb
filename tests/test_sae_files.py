"""Autoencoders in files: there and back, and hostile ones."""

import json
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp_core import sae_files
from interp_core.sae import Shape, SparseAutoencoder
from interp_core.sae_files import SaeError

PAPERS = {"checkpoint": "ab12", "site": "resid_post.1", "text": "python-docs", "recipe": {"steps": 5}}


def saved(folder: Path) -> Path:
    path = folder / f"mine{sae_files.ENDING}"
    sae = SparseAutoencoder(Shape("BatchTopK", 6, 20, k=2), seed=3)
    with torch.no_grad():
        sae.threshold.fill_(0.25)
        sae.scale.fill_(2.0)
    sae_files.save(path, sae, PAPERS, torch.linspace(0, 1, 20))
    return path


def test_there_and_back(tmp_path: Path) -> None:
    path = saved(tmp_path)
    found = sae_files.load(path)
    assert found.name == "mine"
    assert found.sae.shape == Shape("BatchTopK", 6, 20, k=2)
    assert torch.equal(found.sae.decoder, SparseAutoencoder(Shape("BatchTopK", 6, 20, k=2), seed=3).decoder)
    assert (float(found.sae.threshold), float(found.sae.scale)) == (0.25, 2.0)
    assert found.replication is not None
    assert torch.equal(found.replication, torch.linspace(0, 1, 20))
    assert found.card["site"] == sae_files.card_of(path)["site"] == "resid_post.1"
    assert not any(weights.requires_grad for weights in found.sae.parameters())
    (tmp_path / "run").mkdir()
    other = tmp_path / "run" / f"b{sae_files.ENDING}"
    other.write_bytes(path.read_bytes())
    assert sae_files.find(tmp_path) == [other, path]


def changed(path: Path, tensors: dict | None = None, **header: str) -> Path:
    with safetensors.safe_open(path, "pt") as opened:
        held = opened.metadata() | header
    safetensors.torch.save_file(safetensors.torch.load_file(path) | (tensors or {}), path, held)
    return path


def card(**changes: object) -> str:
    return json.dumps({"shape": {"kind": "BatchTopK", "d": 6, "features": 20, "k": 2}, **PAPERS} | changes)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({"format": "sae_lens"}, "its header says 'sae_lens', expected 'loupe-sae-1'"),
        ({"card": "{"}, "its card cannot be read"),
        ({"card": "[" * 100_000}, "its card cannot be read"),
        (
            {"card": json.dumps({"shape": {"kind": "TopK", "d": 6, "features": 20}})},
            "does not say checkpoint, recipe, site, text",
        ),
        ({"card": card(shape={"kind": "TopK", "d": 6, "features": 10**9})}, "tells of 1000000000 features of width 6"),
        ({"card": card(shape={"kind": "L3", "d": 6, "features": 20})}, "cannot be read"),
        ({"card": card(shape={"kind": "BatchTopK", "d": 20, "features": 6, "k": 2})}, "its card is of another file"),
    ],
)
def test_other_files_are_refused_with_a_reason(tmp_path: Path, header: dict[str, str], words: str) -> None:
    with pytest.raises(SaeError, match=words):
        sae_files.load(changed(saved(tmp_path), **header))


def test_weights_that_do_not_fit_or_are_no_numbers(tmp_path: Path) -> None:
    with pytest.raises(SaeError, match="not finite"):
        sae_files.load(changed(saved(tmp_path), {"bias": torch.full((6,), torch.nan)}))
    with pytest.raises(SaeError, match=r"holds .*decoder \[10, 12\].*expected"):
        sae_files.load(changed(saved(tmp_path), {"decoder": torch.zeros(10, 12)}))
    with pytest.raises(SaeError, match="scores of replication for 20 features"):
        sae_files.load(changed(saved(tmp_path), {"replication": torch.zeros(3)}))
    path = tmp_path / f"text{sae_files.ENDING}"
    path.write_text("hello")
    with pytest.raises(SaeError, match="is no autoencoder of this app"):
        sae_files.load(path)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 3000), st.integers(0, 255))
def test_any_byte_changed_gives_a_sentence_or_an_autoencoder(
    tmp_path_factory: pytest.TempPathFactory, at: int, value: int
) -> None:
    folder = tmp_path_factory.mktemp("bytes")
    path = saved(folder)
    data = bytearray(path.read_bytes())
    data[at % len(data)] = value
    path.write_bytes(bytes(data))
    said = ""
    try:
        found = sae_files.load(path)
    except SaeError as error:
        said = str(error)
    assert path.name in said or found.sae.encode(torch.zeros(2, found.sae.shape.d)).shape[0] == 2
