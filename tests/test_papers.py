"""What lies beside weights, alone and in one bundle with them."""

import io
import json
import pickle
import zipfile
from pathlib import Path

import pytest
import safetensors.torch
import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers, trainers

from interp_core import bundles, checkpoints, corpora
from interp_core.checkpoints import CheckpointError, Papers, Vocabulary
from interp_core.papers import read_papers
from interp_core.tokenizers import SubwordTokenizer
from tests.course import course_model
from tests.foreign import gpt2_names
from tests.test_checkpoints import saved

LETTERS = "abcdefghijk"
STOI = {letter: number for number, letter in enumerate(reversed(LETTERS))}
META = pickle.dumps({"vocab_size": 11, "stoi": STOI, "itos": {n: c for c, n in STOI.items()}})
CONFIG = json.dumps(
    {"model_type": "gpt2", "n_head": 4, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}
).encode()


def byte_pairs(size: int = 279) -> tokenizers.Tokenizer:
    """A small tokenizer of GPT-2's kind."""
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator(["the cat sat on the mat, and the dog sat there too. " * 40], trainer)
    return made


def test_every_kind_of_paper_is_known_by_its_content() -> None:
    found = read_papers({"anything.bin": META})
    assert found.vocabulary == Vocabulary(tuple(reversed(LETTERS)), "anything.bin", padded=True)
    found = read_papers({"config.json": CONFIG})
    assert found.settings is not None
    assert found.settings["n_head"] == 4
    assert found.vocabulary is None
    found = read_papers({"card.json": json.dumps({"sha256": "0", "config": {}, "vocabulary": list("ab")}).encode()})
    assert found.card is not None
    assert found.vocabulary is not None
    assert found.vocabulary.characters == ("a", "b")
    found = read_papers({"chars.json": json.dumps(STOI).encode()})
    assert found.vocabulary is not None
    assert found.vocabulary.characters == tuple(reversed(LETTERS))
    found = read_papers({"tiny.txt": b"banana"})
    assert found.text == ("tiny.txt", "banana")
    assert found.vocabulary == Vocabulary(("a", "b", "n"), "tiny.txt")
    found = read_papers({"my tokenizer.json": byte_pairs().to_str().encode()})
    assert found.vocabulary is not None
    assert found.vocabulary.pieces is not None


def test_what_hugging_face_saves_beside_the_rest_is_passed_over() -> None:
    assert read_papers({"generation_config.json": b'{"bos_token_id": 1}', "tokenizer_config.json": b"{}"}) == Papers()


def test_a_vocabulary_of_its_own_comes_before_the_characters_of_a_text() -> None:
    found = read_papers({"a.txt": LETTERS.encode(), "meta.pkl": META})
    assert found.vocabulary is not None
    assert found.vocabulary.source == "meta.pkl"
    assert found.text is not None


def test_byte_pairs_come_in_two_files(tmp_path: Path) -> None:
    made = byte_pairs()
    made.model.save(str(tmp_path))
    vocab, merges = (tmp_path / "vocab.json").read_bytes(), (tmp_path / "merges.txt").read_bytes()
    for files in ({"vocab.json": vocab}, {"merges.txt": merges}):
        with pytest.raises(CheckpointError, match=r"come in two files, and (merges\.txt|vocab\.json) is missing"):
            read_papers(files)
    found = read_papers({"vocab.json": vocab, "merges.txt": merges}).vocabulary
    assert found is not None
    text = "the cat  sat\non Zürich's mat"
    ours = found.tokenizer(made.get_vocab_size() + 5)
    assert ours.encode(text).tolist() == made.encode(text).ids
    assert ours.decode(made.encode(text).ids) == text
    with pytest.raises(CheckpointError, match="do not fit each other"):
        read_papers({"vocab.json": vocab, "merges.txt": b"#version\nq x\n"})


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"model.safetensors.index.json": b'{"metadata": {}, "weight_map": {"a": "b"}}'}, "lists shards"),
        ({"a.json": b"[]"}, "names no vocabulary"),
        ({"a.json": b'{"hello": "world"}'}, "names no vocabulary"),
        ({"a.json": b"{" * 9999}, "not valid JSON"),
        ({"a.txt": b""}, "is empty"),
        ({"a.txt": b"\xff\xfe"}, "not text in UTF-8"),
        ({"a.png": b"\x89PNG\r\n"}, "not text in UTF-8"),
        ({"meta.pkl": pickle.dumps({"stoi": 3})}, "names no vocabulary"),
        ({"big.json": b" " * 20_000_001}, "more than the 20,000,000 of JSON"),
    ],
)
def test_what_is_no_paper_is_refused(files: dict[str, bytes], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_papers(files)


def test_a_tokenizer_that_cannot_be_used_is_a_sentence() -> None:
    vocabulary = read_papers({"t.json": json.dumps({"model": {"type": "Nonsense"}}).encode()}).vocabulary
    with pytest.raises(CheckpointError, match=r"from t\.json cannot be used"):
        checkpoints.read(saved(course_model().state_dict()), "x", vocabulary=vocabulary)
    large = read_papers({"t.json": byte_pairs().to_str().encode()}).vocabulary
    with pytest.raises(CheckpointError, match="279 tokens, but the model 11"):
        checkpoints.read(saved(course_model().state_dict()), "x", vocabulary=large)


def test_padding_keeps_its_rows_and_is_shown_by_number() -> None:
    made = byte_pairs()
    ours = SubwordTokenizer(made.to_str(), 320)
    assert (ours.size, ours.known) == (320, 279)
    assert ours.decode([*made.encode("the cat").ids, 310]) == "the cat⟨310⟩"
    assert ours.label(310) == "⟨310⟩"
    checkpoint = checkpoints.read(
        saved(course_model().state_dict()), "x", vocabulary=Vocabulary(tuple("abc"), "meta.pkl", padded=True)
    )
    assert checkpoint.tokenizer.decode([0, 2, 7]) == "ac⟨7⟩"
    assert checkpoint.tokenizer.label(7) == "⟨7⟩"
    assert checkpoint.tokenizer.encode("cab").tolist() == [2, 0, 1]


def test_pieces_are_shown_with_their_spaces_and_bytes() -> None:
    ours = SubwordTokenizer(byte_pairs().to_str(), 279)
    shown = [ours.label(token) for token in ours.encode(" the é\n").tolist()]
    assert shown[0] == "␣the"
    assert shown[-3:] == ["⟨C3⟩", "⟨A9⟩", "⏎"]


def test_characters_that_pieces_would_lose_are_said() -> None:
    words = tokenizers.Tokenizer(models.BPE(vocab={"a": 0, "b": 1}, merges=[]))
    ours = SubwordTokenizer(words.to_str(), 2)
    with pytest.raises(ValueError, match="1 characters of this text"):
        ours.encode("abz")
    assert ours.encode("abz", "drop").tolist() == [0, 1]
    assert ours.unread("abzz") == 2
    assert corpora.encode("x", "abz" * 4, ours, "drop").dropped == 4


def test_pieces_of_several_characters_leave_nothing_out() -> None:
    ours = SubwordTokenizer(byte_pairs().to_str(), 279)
    text = corpora.encode("x", "the cat sat on the mat é\n" * 9, ours)
    assert len(text) < 9 * 25
    assert text.dropped == 0


def test_the_vocabulary_in_the_file_itself_is_used() -> None:
    for key, value in (("chars", LETTERS), ("itos", list(LETTERS)), ("stoi", {c: i for i, c in enumerate(LETTERS)})):
        checkpoint = checkpoints.read(saved({"model": course_model().state_dict(), key: value}), "x")
        assert checkpoint.tokenizer.decode([1, 0]) == "ba"
        assert checkpoint.vocabulary_source == "the checkpoint's own file"


def nanogpt_folder(folder: Path) -> Path:
    folder.mkdir()
    torch.save(gpt2_names.nanogpt_checkpoint(gpt2_names.nanogpt()), folder / "ckpt.pt")
    (folder / "meta.pkl").write_bytes(META)
    return folder


def test_a_folder_is_found_and_read_with_its_papers(tmp_path: Path) -> None:
    folder = nanogpt_folder(tmp_path / "out-shakespeare")
    (tmp_path / "notes").mkdir()
    (tmp_path / "model.sae.safetensors").write_bytes(b"")
    (tmp_path / "weights.ckpt").write_bytes(saved(course_model().state_dict()))
    assert checkpoints.find(tmp_path) == [folder, tmp_path / "weights.ckpt"]
    checkpoint = checkpoints.load(folder)
    assert checkpoint.name == "out-shakespeare"
    assert checkpoint.model.config.heads == 4
    assert checkpoint.tokenizer.decode([0, 1]) == "kj"
    assert checkpoint.vocabulary_source == "meta.pkl"
    assert checkpoint.sha256 == checkpoints.digest_of(folder / "ckpt.pt")


def test_an_archive_is_read_and_its_paths_are_names_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    weights = safetensors.torch.save(dict(gpt2_names.mingpt().state_dict()))
    data = bundles.pack({
        "../../../evil/model.safetensors": weights, "C:\\windows\\config.json": CONFIG, "/etc/meta.pkl": META,
        "README.md": b"hello", "__MACOSX/._model.safetensors": b"x",
    })  # fmt: skip
    bundle = bundles.unpack(data)
    assert bundle.weights == weights
    checkpoint = checkpoints.read(bundle.weights, "x", bundle.papers)
    assert checkpoint.tokenizer.decode([0]) == "k"
    assert not list(tmp_path.iterdir())


def bomb() -> bytes:
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("model.safetensors", "w") as member,
    ):
        for _ in range(1100):
            member.write(bytes(2**20))
    return buffer.getvalue()


BAD_BUNDLES = {
    "no weights": (bundles.pack({"config.json": CONFIG}), "no weights lie in it"),
    "two of them": (bundles.pack({"a.pt": b"x", "b.pt": b"y"}), "several files of weights"),
    "shards": (
        bundles.pack({f"model-0000{i}-of-00002.safetensors": b"x" for i in (1, 2)}), "in 2 shards: save the model in one file",
    ),
    "bad config": (bundles.pack({"a.pt": b"x", "config.json": b"{"}), "config.json is not valid JSON"),
    "pickled code": (bundles.pack({"a.pt": b"x", "meta.pkl": pickle.dumps(Path("x"))}), "which could run code"),
    "many members": (bundles.pack({f"{i}.txt": b"" for i in range(10_001)}), "10,001 members"),
    "bomb": (bomb(), "claims 1,153,433,600 bytes unpacked"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_BUNDLES)
def test_a_bad_archive_gets_one_sentence(name: str) -> None:
    data, message = BAD_BUNDLES[name]
    assert bundles.is_bundle(data)
    with pytest.raises(CheckpointError, match=message):
        bundles.unpack(data)


def test_an_archive_that_understates_its_sizes_gives_no_more_than_it_says() -> None:
    data = bytearray(bundles.pack({"a.pt": bytes(1000)}))
    for offset in [i for i in range(len(data) - 4) if data[i : i + 4] == (1000).to_bytes(4, "little")]:
        data[offset : offset + 4] = (10).to_bytes(4, "little")
    with pytest.raises(CheckpointError, match="cut off or damaged"):
        bundles.unpack(bytes(data))


def test_a_config_that_is_given_beside_answers_the_question() -> None:
    data = saved(gpt2_names.mingpt().state_dict())
    checkpoint = checkpoints.read(data, "x", Papers(settings=json.loads(CONFIG)))
    assert checkpoint.model.config.heads == 4
    assert checkpoint.unsaid == ("score_scale",)
    sources = {fact.what: fact.source for fact in checkpoint.facts}
    assert sources["heads"] == sources["activation"] == "its config"


def test_answers_make_another_model_of_the_same_file() -> None:
    data = saved(gpt2_names.mingpt().state_dict())
    two, four = (checkpoints.read(data, "x", answers={"heads": heads}) for heads in (2, 4))
    assert len({two.sha256, four.sha256, checkpoints.digest_of(data)}) == 3


@pytest.mark.parametrize("kind", ["characters", "pieces", "numbers"])
def test_an_export_is_read_again_bit_by_bit(kind: str, tmp_path: Path) -> None:
    vocabulary = {
        "characters": Vocabulary(tuple(reversed(LETTERS[:9])), "meta.pkl", padded=True),
        "pieces": Vocabulary(
            (), "tokenizer.json", tokenizers.Tokenizer(models.BPE({"a": 0, "b": 1}, [])).to_str(), True
        ),
        "numbers": None,
    }[kind]
    first = checkpoints.read(
        saved(gpt2_names.mingpt().state_dict()), "x", vocabulary=vocabulary, answers={"heads": 2, "activation": "relu"}
    )
    path = tmp_path / "taken home.zip"
    path.write_bytes(checkpoints.export(first, "x"))
    back = checkpoints.load(path)
    assert back.model.config == first.model.config
    assert back.layout == "course"
    assert back.unsaid == ()
    assert back.tokenizer.identity == first.tokenizer.identity
    ours, theirs = first.model.state_dict(), back.model.state_dict()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
