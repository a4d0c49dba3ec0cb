"""Who may import whom: the house plan as a test."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

# What each module of the library may import of the project; technique modules never import each other.
BASE = {
    "model",
    "tokenizers",
    "statistics",
    "categories",
    "synthetic",
    "baselines",
    "containers",
    "corpora",
    "head_scores",
    "edits",
    "samples",
}

ALLOWED = {
    "attention": set(),
    "model": {"attention"},
    "tokenizers": set(),
    "statistics": set(),
    "synthetic": set(),
    "baselines": set(),
    "containers": {"pickles"},
    "corpora": {"tokenizers"},
    "head_scores": {"model"},
    "edits": {"model"},
    "categories": set(),
    "activations": {"model"},
    "moments": {"statistics"},
    "sparse_logistic": set(),
    "classification": {"statistics"},
    # one technique in three rooms: probes, what they must beat, which neurons they keep whatever they see
    "probing": BASE | {"classification", "sparse_logistic"},
    "probe_controls": {"classification", "sparse_logistic", "statistics"},
    "stability_selection": {"sparse_logistic"},
    # one technique in six rooms: weights, training, quality, files, the command, what features do
    "sae": set(),
    "sae_training": {"sae"},
    "sae_quality": {"model", "sae", "statistics"},
    "sae_files": {"files", "sae"},
    "sae_job": BASE
    | {
        "activations",
        "checkpoints",
        "run_files",
        "sae",
        "sae_files",
        "sae_quality",
        "sae_training",
    },  # its command line reads and writes them
    "features": {"model", "sae", "statistics"},
    "components": {"statistics"},
    "rewards": set(),
    "pools": {"model"},
    "preference": set(),
    "domains": set(),
    "lora": BASE | {"layouts"},
    "lora_sweep": BASE | {"lora"},
    "lora_job": BASE
    | {"checkpoints", "domains", "files", "lora", "lora_sweep", "run_files"},  # its command line reads and writes them
    "directions": {"moments"},
    "ged": BASE | {"directions", "moments"},
    "samples": {"model"},
    "pickles": set(),
    "tables": set(),  # of layouts/
    "refused": set(),
    "settings": {"pickles"},
    "sorting": {"layouts", "pickles"},
    "reading": {"layouts", "model", "pickles"},
    "papers": {"layouts", "pickles", "tokenizers"},
    "bundles": {"containers", "papers", "pickles"},
    "checkpoints": {
        "bundles",
        "containers",
        "files",
        "layouts",
        "model",
        "papers",
        "pickles",
        "run_files",
        "tokenizers",
    },
    "unsaid": {"layouts", "model", "statistics"},
    "preflight": {"baselines", "checkpoints", "corpora", "model", "statistics"},
    "atlas": BASE,
    "ablation": BASE,
    # one technique in four rooms: behaviour, natural text, circuit, what can be concluded
    "copying": BASE,
    "text_copying": BASE,
    "induction": BASE | {"copying"},
    "copying_verdict": {"copying", "induction", "statistics"},
    "lessons": BASE,
    "plans": {"corpora", "lessons", "model", "synthetic"},
    "training": BASE | {"checkpoints", "lessons", "plans", "run_files"},  # its command line writes them
    "budget": {"model", "plans", "training"},
    "learning_curves": {"baselines", "lessons", "statistics"},
    "bengio": {"corpora", "files", "run_files", "tokenizers"},
    "bits_per_char": {"baselines", "bengio", "corpora", "model", "statistics"},
    "files": set(),
    "run_files": {"files"},
    "jobs": {"files"},
}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules(folder: str) -> list[Path]:
    return sorted(path for path in (ROOT / folder).rglob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("path", modules("interp_core"), ids=lambda path: path.stem)
def test_a_module_imports_what_the_plan_allows(path: Path) -> None:
    found = {name.split(".")[1] for name in imports(path) if name.startswith("interp_core.")}
    found &= {other.stem for other in modules("interp_core")} | {"layouts"}
    assert found <= ALLOWED[path.stem], f"{path.stem} must not import {found - ALLOWED[path.stem]}"


@pytest.mark.parametrize("path", modules("interp_core"), ids=lambda path: path.stem)
def test_the_library_knows_no_interface_and_never_prints(path: Path) -> None:
    outside = {name.split(".")[0] for name in imports(path)}
    assert not outside & {"streamlit", "altair", "ui", "pages"}
    calls = [
        node.func.id
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    assert "print" not in calls or path.stem in (
        "training",
        "bengio",
        "sae_job",
        "lora_job",
    )  # their command lines report


@pytest.mark.parametrize("path", modules("ui") + modules("pages"), ids=lambda path: path.stem)
def test_only_one_module_caches_and_only_one_names_the_session(path: Path) -> None:
    source = path.read_text()
    assert ("st.cache_" in source) == (path.name == "cache.py")
    if path.name != "session.py":
        keys = re.findall(r"session_state(?:\[|\.\w+\()\"", source)
        assert not keys, "name the key in ui/session.py"
    assert "pages" not in {name.split(".")[0] for name in imports(path)}


def test_charts_know_no_streamlit() -> None:
    for path in (ROOT / "ui" / "charts").glob("*.py"):
        assert "streamlit" not in set(imports(path)), path


def test_nothing_is_unpickled_unsafely() -> None:
    for path in modules("interp_core") + modules("ui") + modules("pages") + modules("benchmarks"):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        for call in calls:
            name = ast.unparse(call.func)
            assert name not in ("pickle.load", "pickle.loads", "eval", "exec"), path
            if name == "torch.load":
                assert {k.arg: ast.unparse(k.value) for k in call.keywords}["weights_only"] == "True", path
