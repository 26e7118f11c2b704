"""Random gpt-oss checkpoints from a seed and a recipe, so that test weights are never stored.

A recipe lists tensors: name, dtype, shape, how they are filled, and patches for the cases that must occur. The golden
files carry the recipe; src/models/testing/generated_checkpoint.h makes the same bytes from it in C++. The numbers are
base/random.h's: a value depends on (seed, counter) alone.
"""

import json
import pathlib

import numpy as np

U64 = np.uint64
MASK = (1 << 64) - 1


def mix64(x: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser, as in base/random.h."""
    with np.errstate(over="ignore"):
        x = x + U64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> U64(30))) * U64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> U64(27))) * U64(0x94D049BB133111EB)
        return x ^ (x >> U64(31))


def random_bits(seed: int, count: int) -> np.ndarray:
    counters = np.arange(count, dtype=U64) ^ U64(0xD1B54A32D192ED03)
    return mix64(mix64(np.array([seed], dtype=U64)) ^ mix64(counters))


def tensor_seed(seed: int, name: str) -> int:
    """FNV-1a over the name, so that a tensor does not change when another one is added."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return value ^ seed


def random_bytes(seed: int, count: int) -> np.ndarray:
    return random_bits(seed, (count + 7) // 8).view(np.uint8)[:count]


# Four 16-bit numbers summed, centred on zero: near enough to a normal, and exact in integers.
NORMAL_STD = 37837.0


def normals(seed: int, count: int, mean: float, std: float) -> np.ndarray:
    words = random_bits(seed, count)
    total = np.zeros(count, dtype=np.int64)
    for shift in (0, 16, 32, 48):
        total += ((words >> U64(shift)) & U64(0xFFFF)).astype(np.int64)
    return (total - 131070).astype(np.float64) * (std / NORMAL_STD) + mean


def to_bf16_bits(values: np.ndarray) -> np.ndarray:
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)


def from_bf16_bits(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def make_tensor(seed: int, entry: dict) -> np.ndarray:
    """u16 (bf16 bits) or u8, in the entry's shape."""
    count = int(np.prod(entry["shape"]))
    own_seed = tensor_seed(seed, entry["name"])
    fill = entry["fill"]
    if entry["dtype"] == "BF16":
        flat = to_bf16_bits(normals(own_seed, count, fill["mean"], fill["std"]))
    elif "least" in fill:
        span = fill["most"] - fill["least"] + 1
        flat = (fill["least"] + random_bytes(own_seed, count).astype(np.int32) % span).astype(np.uint8)
    else:
        flat = random_bytes(own_seed, count).copy()
    for patch in entry.get("patches", []):
        value = patch["value"]
        if entry["dtype"] == "BF16":
            value = to_bf16_bits(np.array([value], dtype=np.float64))[0]
        flat[patch["at"] : patch["at"] + patch["count"]] = value
    return flat.reshape(entry["shape"])


def checksum(tensor: np.ndarray) -> str:
    """Of the bytes as little-endian 64-bit words, zero-padded, each mixed with its index."""
    raw = tensor.tobytes()
    words = np.frombuffer(raw + bytes(-len(raw) % 8), dtype="<u8").astype(U64)
    with np.errstate(over="ignore"):
        mixed = mix64(words ^ (np.arange(len(words), dtype=U64) * U64(0x9E3779B97F4A7C15)))
        return f"{int(np.add.reduce(mixed)):016x}"


def tokens(seed: int, count: int, vocabulary: int) -> list[int]:
    return [int(x) for x in random_bits(seed, count) % U64(vocabulary)]


# ---- recipes ---------------------------------------------------------------------------------------------------------


def base_config(shape: dict) -> dict:
    """config.json with the keys of the published files."""
    layers = shape["num_hidden_layers"]
    return {
        "architectures": ["GptOssForCausalLM"],
        "attention_bias": True,
        "attention_dropout": 0.0,
        "eos_token_id": 2,
        "experts_per_token": 4,
        "head_dim": 64,
        "hidden_act": "silu",
        "initial_context_length": 4096,
        "initializer_range": 0.02,
        "layer_types": ["full_attention" if i % 2 else "sliding_attention" for i in range(layers)],
        "max_position_embeddings": 131072,
        "model_type": "gpt_oss",
        "num_experts_per_tok": 4,
        "output_router_logits": False,
        "pad_token_id": 1,
        "quantization_config": {
            "modules_to_not_convert": [
                "model.layers.*.self_attn",
                "model.layers.*.mlp.router",
                "model.embed_tokens",
                "lm_head",
            ],
            "quant_method": "mxfp4",
        },
        "rms_norm_eps": 1e-05,
        "rope_scaling": {
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "rope_type": "yarn",
            "truncate": False,
        },
        "rope_theta": 150000,
        "router_aux_loss_coef": 0.9,
        "sliding_window": 128,
        "swiglu_limit": 7.0,
        "tie_word_embeddings": False,
        "transformers_version": "4.55.0.dev0",
        "use_cache": True,
    } | shape


def bf16(name: str, shape: list[int], std: float, mean: float = 0.0, patches: list | None = None) -> dict:
    entry = {"name": name, "dtype": "BF16", "shape": shape, "fill": {"mean": mean, "std": std}}
    return entry | ({"patches": patches} if patches else {})


def u8(name: str, shape: list[int], fill: dict, patches: list | None = None) -> dict:
    entry = {"name": name, "dtype": "U8", "shape": shape, "fill": fill}
    return entry | ({"patches": patches} if patches else {})


def patch(shape: list[int], index: list[int], value: float, count: int = 1) -> dict:
    return {"at": int(np.ravel_multi_index(index, shape)), "count": count, "value": value}


def expert_entries(prefix: str, experts: int, out: int, width: int, most: int, wide_spread: int, bias: float) -> list[dict]:
    """One expert matrix: every code at random, scales of three sizes in each row, and the cases that must occur in the
    first tile of the first experts: blocks of zeros of either sign, and a scale `14` (expert 0) and `wide_spread`
    (expert 1) powers of two below the largest, its codes the smallest ones."""
    groups = width // 32
    blocks, scales = [experts, out, groups, 16], [experts, out, groups]
    spreads = [(0, 14)] + ([(1, wide_spread)] if wide_spread else [])
    return [
        u8(prefix + "_blocks", blocks, {},
           [patch(blocks, [0, 9, 0, 0], 0x80, 16), patch(blocks, [0, 10, 1, 0], 0x00, 16)]
           + [patch(blocks, [e, 5, 2, 0], 0x91, 16) for e, _ in spreads]),
        u8(prefix + "_scales", scales, {"least": most - 2, "most": most},
           [patch(scales, [0, 9, 0], 0)] + [patch(scales, [e, 5, 2], most - spread) for e, spread in spreads]),
        bf16(prefix + "_bias", [experts, out], bias),
    ]


def recipe(config: dict, gate_up_most: int, down_most: int, wide_spread: int = 0) -> list[dict]:
    """Spreads chosen so that every non-linearity is active: attention is peaked, about 3 % of gates and ups are clamped,
    experts add about as much as attention does."""
    hidden, width = config["hidden_size"], config["intermediate_size"]
    experts, vocabulary = config["num_local_experts"], config["vocab_size"]
    heads, kv_heads, dim = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    unit = hidden**-0.5
    entries = [bf16("model.embed_tokens.weight", [vocabulary, hidden], 1.0)]
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        sinks = [patch([heads], [(i + 1) % heads], 30.0), patch([heads], [(i + 2) % heads], -10000.0)]
        entries += [
            bf16(layer + "input_layernorm.weight", [hidden], 0.1, 1.0),
            bf16(layer + "self_attn.q_proj.weight", [heads * dim, hidden], 1.1 * unit),
            bf16(layer + "self_attn.q_proj.bias", [heads * dim], 0.5),
            bf16(layer + "self_attn.k_proj.weight", [kv_heads * dim, hidden], 1.1 * unit),
            bf16(layer + "self_attn.k_proj.bias", [kv_heads * dim], 0.3, 0.2),
            bf16(layer + "self_attn.v_proj.weight", [kv_heads * dim, hidden], 1.0 * unit),
            bf16(layer + "self_attn.v_proj.bias", [kv_heads * dim], 0.4, -0.1),
            bf16(layer + "self_attn.sinks", [heads], 1.0, 0.0, sinks),
            bf16(layer + "self_attn.o_proj.weight", [hidden, heads * dim], (heads * dim) ** -0.5),
            bf16(layer + "self_attn.o_proj.bias", [hidden], 0.2),
            bf16(layer + "post_attention_layernorm.weight", [hidden], 0.1, 1.0),
            bf16(layer + "mlp.router.weight", [experts, hidden], 2.0 * unit),
            bf16(layer + "mlp.router.bias", [experts], 0.5),
        ]
        entries += expert_entries(layer + "mlp.experts.gate_up_proj", experts, 2 * width, hidden, gate_up_most,
                                  wide_spread, 0.5)
        entries += expert_entries(layer + "mlp.experts.down_proj", experts, hidden, width, down_most, wide_spread, 0.3)
    entries.append(bf16("model.norm.weight", [hidden], 0.1, 1.0))
    entries.append(bf16("lm_head.weight", [vocabulary, hidden], 2.0 * unit))
    return entries


TINY_A = base_config(dict(
    num_hidden_layers=4, hidden_size=192, intermediate_size=320, num_attention_heads=16, num_key_value_heads=2,
    num_local_experts=16, vocab_size=2176,
))
TINY_B = base_config(dict(
    num_hidden_layers=2, hidden_size=832, intermediate_size=960, num_attention_heads=64, num_key_value_heads=8,
    num_local_experts=32, vocab_size=2176,
))
# Small enough for more than 4096 positions in a unit test.
TINY_LONG = base_config(dict(
    num_hidden_layers=2, hidden_size=96, intermediate_size=128, num_attention_heads=2, num_key_value_heads=1,
    num_local_experts=8, vocab_size=512,
))
# One layer at the published width, for the tails of every tile.
WIDE = base_config(dict(
    num_hidden_layers=1, hidden_size=2880, intermediate_size=2880, num_attention_heads=64, num_key_value_heads=8,
    num_local_experts=4, vocab_size=520,
))

MODELS = {
    "tiny_a": dict(config=TINY_A, seed=0xA001, tensors=recipe(TINY_A, 124, 120, wide_spread=15)),
    "tiny_b": dict(config=TINY_B, seed=0xB001, tensors=recipe(TINY_B, 123, 119)),
    "tiny_long": dict(config=TINY_LONG, seed=0xA002, tensors=recipe(TINY_LONG, 124, 121)),
    "wide": dict(config=WIDE, seed=0xC001, tensors=recipe(WIDE, 122, 118)),
}


def make_checkpoint(model: dict) -> dict[str, np.ndarray]:
    return {entry["name"]: make_tensor(model["seed"], entry) for entry in model["tensors"]}


def write_checkpoint(model: dict, folder: pathlib.Path) -> None:
    """config.json and model.safetensors, for programs that read folders."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(model["config"], indent=2) + "\n")
    header, offset = {}, 0
    for entry in model["tensors"]:
        size = int(np.prod(entry["shape"])) * (2 if entry["dtype"] == "BF16" else 1)
        header[entry["name"]] = {"dtype": entry["dtype"], "shape": entry["shape"], "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for entry in model["tensors"]:
            file.write(make_tensor(model["seed"], entry).tobytes())
