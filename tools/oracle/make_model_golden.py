"""Writes tests/golden/model/*.json: recipes of random checkpoints and the logits that transformers computes for them.

    python tools/oracle/make_model_golden.py [--only tiny_a]

The reference runs in f64 (its norms and RoPE angles stay f32, as the class has them), so that what a test sees is the
error of the code under test. How far the reference's own f32 is from that is recorded beside it.
"""

import argparse
import json
import pathlib

import numpy as np
import torch

import generated
import reference

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/model"
COLUMNS = 96  # logits kept of a row: a comb that starts at another column in each row, and the largest

RUNS = {
    "tiny_a": [
        dict(name="300 tokens", seed=1, tokens=300,
             rows=[0, 1, 31, 63, 126, 127, 128, 129, 130, 200, 255, 256, 298, 299]),
        dict(name="up to position 131071", seed=2, tokens=160, first_position=131072 - 160,
             rows=[0, 64, 127, 128, 129, 159]),
    ],
    "tiny_b": [dict(name="132 tokens", seed=3, tokens=132, rows=[0, 1, 64, 127, 128, 129, 131])],
    "tiny_long": [dict(name="4097 tokens", seed=4, tokens=4097, rows=[0, 64, 126, 127, 128, 129, 130, 2048, 4094, 4095, 4096])],
    "wide": [dict(name="8 tokens", seed=5, tokens=8, rows=[0, 3, 7])],
}


def columns_of(row: int, logits: np.ndarray) -> list[int]:
    step = max(1, len(logits) // COLUMNS)
    return sorted(set(range(row % step, len(logits), step)) | {int(np.argmax(logits))})


def run_golden(models: dict, config: dict, run: dict) -> dict:
    ids = generated.tokens(run["seed"], run["tokens"], config["vocab_size"])
    first = run.get("first_position", 0)
    exact, single = (reference.logits_of(m, ids, run["rows"], first) for m in models)
    largest = float(np.abs(exact).max())
    difference = float(np.abs(exact - single).max())
    print(f"  {run['name']}: largest |logit| {largest:.4f}, transformers f32 against f64 {difference / largest:.1e}")
    rows = []
    for row, values in zip(run["rows"], exact):
        columns = columns_of(row, values)
        rows.append({"row": row, "columns": columns, "logits": [float(f"{values[c]:.9g}") for c in columns]})
    described = {key: value for key, value in run.items() if key != "rows"}
    return described | {"largest": largest, "reference_f32_difference": difference, "rows": rows}


def dumps(golden: dict) -> str:
    """JSON with one tensor and one row a line."""
    lines = []
    for key, value in golden.items():
        if key == "tensors":
            text = "[\n" + ",\n".join("  " + json.dumps(v) for v in value) + "\n]"
        elif key == "runs":
            runs = []
            for run in value:
                rows = ",\n".join("    " + json.dumps(row) for row in run["rows"])
                runs.append("  " + json.dumps(run | {"rows": []})[:-2] + "\n" + rows + "\n  ]}")
            text = "[\n" + ",\n".join(runs) + "\n]"
        else:
            text = json.dumps(value)
        lines.append(f'"{key}": {text}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def make(name: str) -> None:
    model = generated.MODELS[name]
    print(name)
    tensors = generated.make_checkpoint(model)
    entries = [e | {"checksum": generated.checksum(tensors[e["name"]])} for e in model["tensors"]]
    models = [reference.build(model["config"], tensors, dtype) for dtype in (torch.float64, torch.float32)]
    golden = {
        "made_by": "tools/oracle/make_model_golden.py",
        "versions": reference.versions(),
        "config": model["config"],
        "seed": model["seed"],
        "tensors": entries,
        "runs": [run_golden(models, model["config"], run) for run in RUNS[name]],
    }
    text = dumps(golden)
    assert json.loads(text) == golden
    GOLDEN.mkdir(parents=True, exist_ok=True)
    (GOLDEN / f"{name}.json").write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=generated.MODELS)
    options = parser.parse_args()
    for name in [options.only] if options.only else generated.MODELS:
        make(name)


if __name__ == "__main__":
    main()
