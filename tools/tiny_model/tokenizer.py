"""Trains the small byte-level BPE and writes it in the published tokenizer.json form.

The published split pattern is kept; the merges are learned under a finer split, which
is still valid under the coarser one:
  * every digit alone, so that no token ever holds two digits (arithmetic needs that);
  * words without the space before them, so that an unseen name is cut the same way in
    a sentence and inside JSON quotes (copying needs that).
Space + word merges are appended last for frequent words, which wins back the length.
"""

import argparse
import collections
import json
import pathlib
import re

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from . import words
from .shapes import VOCAB_SIZE

SPECIALS = [
    "<|startoftext|>", "<|endoftext|>", "<|return|>", "<|constrain|>", "<|channel|>",
    "<|start|>", "<|end|>", "<|message|>", "<|call|>", "<|endofprompt|>",
]
SPACE_WORDS = 440
SHORT_WORDS = set("a an as at be by do go I if in is it me my no of on or so to up us we".split())
NAMES = {part for name in words.FIRST + words.LAST + words.CITIES for part in name.split()}

O200K_PATTERN = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
    r"\s*[\r\n]+",
    r"\s+(?!\S)",
    r"\s+",
])
TRAINING_PATTERN = "|".join([
    r"[\p{Lu}]*[\p{Ll}]+",
    r"[\p{Lu}]+",
    r"\p{N}",
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
    r"\s*[\r\n]+",
    r"\s+",
])


def train_merges(texts: list[str], vocab_size: int) -> tuple[dict, list]:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(TRAINING_PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        min_frequency=2, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]]


def add_space_words(texts: list[str], vocab: dict, merges: list, size: int) -> None:
    """Appends `space + word` for the most frequent words that are one token already.

    Not for names and fragments: " Anna" and "Anna" should stay the same token.
    """
    counts = collections.Counter()
    for text in texts:
        counts.update(re.findall(r"(?<= )[A-Za-z]+", text))
    for name in NAMES:
        counts.pop(name, None)
    for word, _ in counts.most_common():
        if len(vocab) >= size:
            break
        long_enough = len(word) > (2 if word.islower() else 3) or word in SHORT_WORDS
        if long_enough and word in vocab and "Ġ" + word not in vocab:
            vocab["Ġ" + word] = len(vocab)
            merges.append(("Ġ", word))


def build(texts: list[str]) -> Tokenizer:
    ordinary = VOCAB_SIZE - len(SPECIALS)
    vocab, merges = train_merges(texts, ordinary - SPACE_WORDS)
    add_space_words(texts, vocab, merges, ordinary)
    if len(vocab) != ordinary:
        raise ValueError(f"training text too small: {len(vocab)} of {ordinary} tokens")
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(O200K_PATTERN), "isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIALS])
    check(tokenizer)
    return tokenizer


def check(tokenizer: Tokenizer) -> None:
    vocab = tokenizer.get_vocab(with_added_tokens=True)
    if sorted(vocab.values()) != list(range(VOCAB_SIZE)):
        raise ValueError("token ids are not contiguous")
    bad = [t for t in vocab if len(re.findall(r"[0-9]", t)) > 1]
    if bad:
        raise ValueError(f"tokens with several digits: {bad[:5]}")
    for text in ["1234567 x", "naïve — 日本語 👩‍👩‍👧 \r\n\t ok"]:
        if tokenizer.decode(tokenizer.encode(text).ids) != text:
            raise ValueError(f"no round trip: {text!r}")


def special_ids(tokenizer: Tokenizer) -> dict[str, int]:
    return {s: tokenizer.token_to_id(s) for s in SPECIALS}


def save(tokenizer: Tokenizer, folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "added_tokens_decoder": {
            str(i): {"content": s, "lstrip": False, "normalized": False, "rstrip": False,
                     "single_word": False, "special": True}
            for s, i in special_ids(tokenizer).items()
        },
        "bos_token": "<|startoftext|>",
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|return|>",
        "extra_special_tokens": {},
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": 131072,
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")


def main() -> None:
    from .generate import Generator

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--conversations", type=int, default=30000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    generator = Generator(seed=options.seed)
    texts = [generator.plain_text() for _ in range(options.conversations)]
    save(build(texts), options.out)


if __name__ == "__main__":
    main()
