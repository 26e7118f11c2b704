"""Writes a trained model as a published-layout checkpoint, and reads one back.

    python -m tiny_model.export --state state.safetensors --model rose-tiny --tokenizer DIR --out models/rose-tiny
"""

import argparse
import json
import pathlib
import shutil

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from . import mxfp4
from .shapes import SHAPES, generation_config, published_config, training_config
from .tokenizer import special_ids

EXPERT_MATRICES = ("gate_up_proj", "down_proj")


def pack_state(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    packed = {}
    for name, tensor in state.items():
        if name.endswith(EXPERT_MATRICES):
            blocks, scales = mxfp4.pack(tensor.cpu())
            packed[name + "_blocks"], packed[name + "_scales"] = blocks, scales
        else:
            packed[name] = tensor.detach().cpu().to(torch.bfloat16).contiguous()
    return packed


def unpack_state(packed: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    state = {}
    for name, tensor in packed.items():
        if name.endswith("_blocks"):
            stem = name.removesuffix("_blocks")
            state[stem] = mxfp4.unpack(tensor, packed[stem + "_scales"]).to(torch.bfloat16)
        elif not name.endswith("_scales"):
            state[name] = tensor
    return state


def write_checkpoint(state: dict, shape: dict, tokenizer_folder: pathlib.Path, out: pathlib.Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if (tokenizer_folder / name).resolve() != (out / name).resolve():
            shutil.copyfile(tokenizer_folder / name, out / name)
    ids = special_ids(Tokenizer.from_file(str(out / "tokenizer.json")))
    (out / "config.json").write_text(json.dumps(published_config(shape, ids), indent=2) + "\n")
    (out / "generation_config.json").write_text(json.dumps(generation_config(ids), indent=2) + "\n")
    save_file(pack_state(state), out / "model.safetensors")
    (out / "model.safetensors").chmod(0o644)


def load_checkpoint(folder: pathlib.Path, dtype=torch.bfloat16):
    """The exported files in transformers' own class, dequantized by this package."""
    from transformers import GptOssForCausalLM

    config = json.loads((folder / "config.json").read_text())
    ids = special_ids(Tokenizer.from_file(str(folder / "tokenizer.json")))
    shape = {key: config[key] for key in SHAPES["rose-tiny"]}
    model = GptOssForCausalLM(training_config(shape, ids)).to(dtype)
    state = unpack_state(load_file(folder / "model.safetensors"))
    model.load_state_dict(state, strict=True)
    return model.eval()


def random_state(shape: dict, ids: dict, seed: int) -> dict:
    from transformers import GptOssForCausalLM

    torch.manual_seed(seed)
    return GptOssForCausalLM(training_config(shape, ids)).state_dict()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--state", type=pathlib.Path, help="trained weights; random ones if absent")
    parser.add_argument("--model", choices=SHAPES, default="rose-tiny")
    parser.add_argument("--tokenizer", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    shape = SHAPES[options.model]
    ids = special_ids(Tokenizer.from_file(str(options.tokenizer / "tokenizer.json")))
    state = load_file(options.state) if options.state else random_state(shape, ids, options.seed)
    write_checkpoint(state, shape, options.tokenizer, options.out)


if __name__ == "__main__":
    main()
