"""Layers of the published width on a GPU against transformers on the same card.

    python tests/gpu/true_width.py --program build/cuda/bin/oracle_logits [--layers 2] [--tokens 300] [--recipe tiny_b]

The reference is the class in f64. What transformers' own bf16 run differs from it is the yardstick: rose with bf16
activations must not be further away than 1.25 times that. With activations in FP8 between the experts' products the
bound is the rounding of e4m3 (2^-4 / sqrt(3) of every activation, two products a layer, the experts about half of a
row): 5 % a layer. Errors are root mean squares over that of the logits; those of the median row are compared, because
where two experts' router logits nearly tie, a rounding anywhere sends a row another way.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "oracle"))
import generated  # noqa: E402
import reference  # noqa: E402


def model_of(layers: int, experts: int) -> dict:
    config = generated.base_config(dict(
        num_hidden_layers=layers, hidden_size=2880, intermediate_size=2880, num_attention_heads=64,
        num_key_value_heads=8, num_local_experts=experts, vocab_size=4096,
    ))
    return dict(config=config, seed=0xD001, tensors=generated.recipe(config, 122, 118))


@torch.no_grad()
def transformers_logits(config: dict, tensors: dict, dtype: torch.dtype, ids: list[int]) -> np.ndarray:
    model = reference.build(config, tensors, dtype).to("cuda")
    model.model.rotary_emb = model.model.rotary_emb.to("cuda")
    tokens = torch.tensor([ids], device="cuda")
    out = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False)
    logits = out.logits[0].double().cpu().numpy()
    del model
    torch.cuda.empty_cache()
    return logits


def rose_logits(program: str, folder: pathlib.Path, chunk: int, device: str, ids: list[int], vocabulary: int):
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run([program, str(folder), "mxfp4", str(chunk), out.name, device], text=True, check=True,
                       input=" ".join(map(str, ids)))
        return np.fromfile(out.name, dtype="<f4").reshape(len(ids), vocabulary).astype(np.float64)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--experts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--recipe", choices=sorted(generated.MODELS), help="one of generated.py's instead")
    options = parser.parse_args()
    model = generated.MODELS[options.recipe] if options.recipe else model_of(options.layers, options.experts)
    layers = model["config"]["num_hidden_layers"]
    vocabulary = model["config"]["vocab_size"]
    ids = generated.tokens(7, options.tokens, vocabulary)
    print(torch.cuda.get_device_name(), ", ".join(f"{k} {v}" for k, v in reference.versions().items()))
    tensors = generated.make_checkpoint(model)
    exact = transformers_logits(model["config"], tensors, torch.float64, ids)
    size = np.sqrt((exact**2).mean())

    def report(what: str, found: np.ndarray) -> float:
        rows = np.sqrt(((found - exact) ** 2).mean(axis=1)) / size
        agree = float((found.argmax(axis=1) == exact.argmax(axis=1)).mean())
        print(f"{what:<40} median row {np.median(rows):.2e}  90 % {np.quantile(rows, 0.9):.2e}  worst {rows.max():.2e}  "
              f"all {np.sqrt((rows**2).mean()):.2e}  same argmax {agree:.3f}", flush=True)
        return float(np.median(rows))

    yardstick = report("transformers, bf16", transformers_logits(model["config"], tensors, torch.bfloat16, ids))
    good = True
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        generated.write_checkpoint(model, folder)
        for device, chunk in (("cuda-bf16", 512), ("cuda-bf16", 64), ("cuda-bf16", 1), ("cuda", 512), ("cuda", 128)):
            found = rose_logits(options.program, folder, chunk, device, ids, vocabulary)
            error = report(f"rose, {device}, {chunk} rows a step", found)
            good = good and error <= (1.25 * yardstick if device == "cuda-bf16" else 0.05 * np.sqrt(layers) + yardstick)
    print("within the bounds" if good else "OVER A BOUND")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
