"""Golden vectors for the tokenizer tests, from the public libraries.

    python3 tools/oracle/tokenizer_vectors.py        (needs tiktoken, tokenizers; no network)

Writes under tests/golden/:
  tokenizer_vectors.jsonl        o200k text and ids, from tiktoken with tests/data/o200k_base.tiktoken
  tokenizer_small.json           a 600-entry byte-level BPE trained here with Hugging Face tokenizers
  tokenizer_small_vectors.jsonl  its text and ids, special strings in the text becoming special ids
  utf8_vectors.jsonl             byte strings (hex) and what Python decodes them to with errors="replace"
and, where models/rose-tiny has a tokenizer, tokenizer_rose_tiny_vectors.jsonl for it.

Everything is drawn from a seed. Only code points that the Python's own Unicode version assigns are drawn, so that newer
libraries classify them alike.
"""

import base64
import hashlib
import json
import pathlib
import random
import sys
import unicodedata

import tiktoken
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"

PATTERN = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
    r"\s*[\r\n]+",
    r"\s+(?!\S)",
    r"\s+",
])

SPECIALS = ["<|startoftext|>", "<|endoftext|>", "<|return|>", "<|constrain|>", "<|channel|>", "<|start|>", "<|end|>",
            "<|message|>", "<|call|>", "<|endofprompt|>"]

SCRIPTS = [  # (first, last) of blocks, so that the pieces look like words of one script
    (0x41, 0x5A), (0x61, 0x7A), (0xC0, 0x17F), (0x180, 0x24F), (0x370, 0x3FF), (0x400, 0x4FF), (0x531, 0x587),
    (0x591, 0x5F4), (0x600, 0x6FF), (0x900, 0x97F), (0x980, 0x9FE), (0xB80, 0xBFA), (0xE01, 0xE5B), (0xF00, 0xFDA),
    (0x1000, 0x109F), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x137C), (0x13A0, 0x13FD), (0x1780, 0x17F9),
    (0x1E00, 0x1EFF), (0x1F00, 0x1FFE), (0x2C00, 0x2C5F), (0x3041, 0x30FF), (0x4E00, 0x5E00), (0xA4D0, 0xA4FF),
    (0xAC00, 0xB000), (0xFB00, 0xFB4F), (0xFF01, 0xFFEE), (0x10400, 0x1044F), (0x1D400, 0x1D7FF), (0x1E900, 0x1E95F),
    (0x20000, 0x20100),
]
SPACES = [" ", "  ", "    ", "\t", "\n", "\r\n", "\r", "\n\n", "\u00a0", "\u2003", "\u3000", "\u2028", "\u2029", "\u0085",
          "\u200b", "\ufeff", "\x0b", "\x0c", "\x1c", "\x1f", "\u202f", "\u1680", "\u205f", "\u180e"]
APOSTROPHES = ["'s", "'S", "'t", "'T", "'re", "'RE", "'Re", "'ve", "'vE", "'m", "'ll", "'LL", "'d", "'D", "\u2019s", "'",
               "''s", "'\u017f", "'l", "'r", "'v", "'x", "'sx", "'llama", "'\u212a"]
DIGITS = "0123456789" + "\u0660\u0669\u0966\u00b2\u00bd\u2167\u2464\u3007\uff15\U0001d7ce"
SYMBOLS = list("!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~'") + ["//", "/*", "*/", "->", "::", "...", "\u2026", "\u2014", "\u00a7",
                                                        "\u20ac", "\u2264", "\u0301", "\u20dd", "\u0903", "/\n", "\u00ad"]
EMOJI = ["\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f44d\U0001f3fd", "\u2764\ufe0f",
         "\U0001f1e9\U0001f1ea", "1\ufe0f\u20e3", "\u263a", "\U0001f9d1\U0001f3fe\u200d\U0001f680"]
WORDS = ("the of and to in is that it was for on are with as his they at be this from have or by one had not but what all "
         "were when we there can an your which their said if do will each about how up out them then she many some so "
         "these would other into has more two like him see time could no make than first been its who now people my made "
         "over did down only way find use may water long little very after words called just where most know get through "
         "back much before go good new write our used me man too any day same right look think also around another came "
         "three word because does part even place well such here take why things help put years different away again off "
         "tokenizer vocabulary encode HTTPServer camelCase snake_case getElementById XMLHttpRequest iPhone McDonald NASA "
         "naïve café Straße ÉCOLE façade Ünïcödé don't I'll we've they're it's DON'T o'clock rock'n'roll y'all'd've"
         ).split()
CODE = [
    "def f(x, y=None):\n    return [i**2 for i in range(10) if i % 2 == 0]\n",
    "#include <vector>\nint main() {\n\tstd::vector<int> v{1, 2, 3};\n\treturn v.size() != 3; // ok\n}\n",
    "SELECT * FROM t WHERE a >= 10 AND b LIKE '%x%';\r\n",
    '{"name": "get_weather", "arguments": {"city": "Zürich", "days": 3, "ids": [1, 22, 333, 4444]}}',
    "<div class=\"a b\">\n  <a href='https://example.org/a/b?c=d&e=%20f'>x</a>\n</div>",
    "for (let i = 0; i < arr.length; ++i) { sum += arr[i] /* note */; }",
    "\\begin{equation}\n  e^{i\\pi} + 1 = 0\n\\end{equation}", "$ git log --oneline | head -n 20 >> /tmp/x.txt && echo done",
    "0x1F 0b1010 1_000_000 3.14159e-10 127.0.0.1 2025-06-28T12:34:56Z +1 (555) 123-4567", "x²+y³=½ ⅷ Ⅷ ①②③ ١٢٣٤ ९८७",
]


def assigned(code: int) -> bool:
    return unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co")


ALL = [c for c in range(0x110000) if assigned(c)]


def script_word(rng: random.Random) -> str:
    first, last = rng.choice(SCRIPTS)
    chars = [chr(c) for c in (rng.randint(first, last) for _ in range(rng.randint(1, 8))) if assigned(c)]
    if rng.random() < 0.2:
        chars.insert(rng.randint(0, len(chars)), chr(rng.randint(0x300, 0x36F)))
    return "".join(chars)


def case_mix(rng: random.Random) -> str:
    """Upper, lower, title, caseless and marks in short runs: what the two word alternatives are about."""
    kinds = ["A", "B", "a", "b", "\u01c5", "\u02b0", "\u4e2d", "\u0e01", "\u0301", "\u0903", "\u20dd", "'s", "-", " ", "1"]
    return "".join(rng.choice(kinds) for _ in range(rng.randint(2, 12)))


def segment(rng: random.Random) -> str:
    draw = rng.random()
    if draw < 0.22:
        return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 6)))
    if draw < 0.40:
        return script_word(rng)
    if draw < 0.48:
        return case_mix(rng)
    if draw < 0.58:
        return "".join(rng.choice(SPACES) for _ in range(rng.randint(1, 4)))
    if draw < 0.66:
        return rng.choice(WORDS) + rng.choice(APOSTROPHES)
    if draw < 0.73:
        return "".join(rng.choice(DIGITS) for _ in range(rng.randint(1, 9)))
    if draw < 0.82:
        return "".join(rng.choice(SYMBOLS) for _ in range(rng.randint(1, 5)))
    if draw < 0.86:
        return "".join(rng.choice(EMOJI) for _ in range(rng.randint(1, 3)))
    if draw < 0.89:
        return rng.choice(CODE)
    if draw < 0.91:
        return rng.choice(SPECIALS)
    if draw < 0.93:
        return rng.choice(["a", "=", " ", "\n", "é", "中", "Ab", "ACGT", "ha", "0", "-", "\t", "ก"]) * rng.randint(20, 90)
    return "".join(chr(rng.choice(ALL)) for _ in range(rng.randint(1, 6)))


def texts(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    out = ["", " ", "\n", "a"]
    out += [c * n for c in ["a", " ", "\n", "=", "-", "中", "A", "ab", "aA", "é", "\U0001f600"] for n in (63, 64, 65, 300)]
    while len(out) < count:
        out.append("".join(segment(rng) for _ in range(rng.randint(1, 9))))
    return out


def write(name: str, rows: list[dict]) -> None:
    path = GOLDEN / name
    path.write_text("".join(json.dumps(row, ensure_ascii=True, separators=(",", ":")) + "\n" for row in rows))
    print(f"{name}: {len(rows)} rows, {path.stat().st_size} bytes")


def o200k() -> tiktoken.Encoding:
    lines = (ROOT / "tests" / "data" / "o200k_base.tiktoken").read_bytes().splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines)}
    return tiktoken.Encoding("o200k", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})


def train_small() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=590, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(texts(1, 3000), trainer)
    tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIALS])
    return tokenizer


def encoded(tokenizer: Tokenizer, rows: list[str]) -> list[dict]:
    return [{"text": t, "ids": tokenizer.encode(t, add_special_tokens=False).ids} for t in rows]


def utf8_rows(seed: int, count: int) -> list[dict]:
    rng = random.Random(seed)
    rows = []
    for _ in range(count):
        raw = bytearray()
        for _ in range(rng.randint(1, 8)):
            draw = rng.random()
            good = chr(rng.choice(ALL)).encode()
            if draw < 0.4:
                raw += good
            elif draw < 0.6:
                raw += good[:rng.randint(1, len(good))]
            elif draw < 0.8:
                raw.append(rng.choice([0x80, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0x9F, 0xA0, 0xED, 0xEF, 0xF0, 0x8F, 0x90,
                                       0xF4, 0xF5, 0xFF, 0xF1, 0xF3]))
            else:
                raw.append(rng.randrange(256))
        rows.append({"bytes": raw.hex(), "text": bytes(raw).decode("utf-8", "replace")})
    return rows


def main() -> int:
    GOLDEN.mkdir(parents=True, exist_ok=True)
    print(f"tiktoken {tiktoken.__version__}, tokenizers {tokenizers.__version__}, Unicode {unicodedata.unidata_version}")
    encoding = o200k()
    write("tokenizer_vectors.jsonl",
          [{"text": t, "ids": encoding.encode_ordinary(t)} for t in texts(200_000, 1400)])
    small = train_small()
    (GOLDEN / "tokenizer_small.json").write_text(small.to_str() + "\n")
    write("tokenizer_small_vectors.jsonl", encoded(small, texts(600, 400)))
    write("utf8_vectors.jsonl", utf8_rows(8, 1500))
    tiny = ROOT / "models" / "rose-tiny" / "tokenizer.json"
    if tiny.exists():
        print("rose-tiny tokenizer", hashlib.sha256(tiny.read_bytes()).hexdigest())
        write("tokenizer_rose_tiny_vectors.jsonl", encoded(Tokenizer.from_file(str(tiny)), texts(2048, 300)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
