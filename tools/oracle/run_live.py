"""Compares rose's logits with transformers', live, on a checkpoint folder; prints a table.

    python tools/oracle/run_live.py --program build/release/bin/oracle_logits [--tokens 300] FOLDER...

A folder may also be one of the recipes of generated.py (tiny_a, ...), which is then written to a temporary folder. Exits
with 1 when a difference is over the bound.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch

import generated
import reference

BOUND = 1e-4  # of the largest |logit|
SETTINGS = [("mxfp4", 512), ("mxfp4", 7), ("mxfp4", 1), ("bf16", 512), ("fp8", 512)]
BAD_FILES = 4  # exit code, also for weights that FP8 cannot hold exactly


def read_safetensors(folder: pathlib.Path) -> dict[str, np.ndarray]:
    """bf16 as u16 bits, u8 as it is; files and offsets as the format defines them."""
    index = folder / "model.safetensors.index.json"
    names = sorted(set(json.loads(index.read_text())["weight_map"].values())) if index.exists() else ["model.safetensors"]
    tensors = {}
    for name in names:
        raw = np.memmap(folder / name, dtype=np.uint8, mode="r")
        length = int.from_bytes(raw[:8].tobytes(), "little")
        for key, entry in json.loads(raw[8 : 8 + length].tobytes()).items():
            if key == "__metadata__":
                continue
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            values = np.frombuffer(raw[begin:end].tobytes(), dtype={"BF16": np.uint16, "U8": np.uint8}[entry["dtype"]])
            tensors[key] = values.reshape(entry["shape"])
    return tensors


def rose_logits(program: str, folder: pathlib.Path, setting: tuple[str, int], ids: list[int], vocabulary: int):
    with tempfile.NamedTemporaryFile() as out:
        result = subprocess.run([program, str(folder), setting[0], str(setting[1]), out.name], text=True,
                                input=" ".join(map(str, ids)), stderr=subprocess.PIPE)
        if result.returncode == BAD_FILES and setting[0] == "fp8" and "tile" in result.stderr:
            return None
        if result.returncode != 0:
            sys.exit(result.stderr)
        return np.fromfile(out.name, dtype="<f4").reshape(len(ids), vocabulary).astype(np.float64)


def compare(program: str, folder: pathlib.Path, name: str, count: int) -> bool:
    config = json.loads((folder / "config.json").read_text())
    vocabulary = config["vocab_size"]
    ids = generated.tokens(7, count, vocabulary)
    model = reference.build(config, read_safetensors(folder), torch.float64)
    exact = reference.logits_of(model, ids, list(range(count)))
    largest = np.abs(exact).max()
    good = True
    for setting in SETTINGS:
        found = rose_logits(program, folder, setting, ids, vocabulary)
        if found is None:
            print(f"{name:<12} {setting[0]:<6} {setting[1]:>5}   (has tiles that FP8 cannot hold)")
            continue
        difference = np.abs(found - exact)
        row = int(difference.max(axis=1).argmax())
        share = difference.max() / largest
        agree = float((found.argmax(axis=1) == exact.argmax(axis=1)).mean())
        verdict = "" if share <= BOUND else f"   over the bound, worst at token {row}"
        print(f"{name:<12} {setting[0]:<6} {setting[1]:>5}   {share:9.2e}   {agree:8.4f}{verdict}")
        good &= bool(share <= BOUND)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="checkpoint folders, or recipes: " + ", ".join(generated.MODELS))
    parser.add_argument("--program", required=True, help="the oracle_logits executable")
    parser.add_argument("--tokens", type=int, default=300)
    options = parser.parse_args()
    print("against", ", ".join(f"{key} {value}" for key, value in reference.versions().items()))
    print(f"{'model':<12} {'experts':<6} chunk  of largest  same argmax")
    good = True
    for name in options.models:
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(name)
            if name in generated.MODELS:
                folder = pathlib.Path(temporary)
                generated.write_checkpoint(generated.MODELS[name], folder)
            good &= compare(options.program, folder, name if name in generated.MODELS else folder.name, options.tokens)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
