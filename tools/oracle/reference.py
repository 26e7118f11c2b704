"""The public reference: transformers' GptOssForCausalLM with the weights of a published-layout checkpoint.

MXFP4 is decoded here from the format's definition, into the class's own [experts, in, out] parameters, so that no kernel
of any library stands between the file and the reference.
"""

import numpy as np
import torch
import transformers

from generated import from_bf16_bits

E2M1 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], dtype=np.float32)
CODES = np.concatenate([E2M1, -E2M1])


def decode_mxfp4(blocks: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """[E, out, groups, 16] u8, [E, out, groups] u8 -> [E, in, out] f32; the low nibble is the even element."""
    values = np.empty(blocks.shape[:-1] + (32,), dtype=np.float32)
    values[..., 0::2] = CODES[blocks & 15]
    values[..., 1::2] = CODES[blocks >> 4]
    values = np.ldexp(values, scales.astype(np.int32)[..., None] - 127)
    experts, out = blocks.shape[:2]
    return np.ascontiguousarray(values.reshape(experts, out, -1).transpose(0, 2, 1))


def state_of(tensors: dict[str, np.ndarray], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    state = {}
    for name, tensor in tensors.items():
        if name.endswith("_scales"):
            continue
        if name.endswith("_blocks"):
            name = name.removesuffix("_blocks")
            values = decode_mxfp4(tensor, tensors[name + "_scales"])
        else:
            values = from_bf16_bits(tensor)
        state[name] = torch.from_numpy(values).to(dtype)
    return state


def build(config: dict, tensors: dict[str, np.ndarray], dtype: torch.dtype):
    """The class unchanged, its plain implementations of attention and experts, all parameters in `dtype`."""
    fields = {key: value for key, value in config.items() if key != "quantization_config"}
    loaded = transformers.GptOssConfig.from_dict(fields)
    loaded._attn_implementation = "eager"
    loaded._experts_implementation = "eager"
    with torch.device("meta"):
        model = transformers.GptOssForCausalLM(loaded)
    rotary = type(model.model.rotary_emb)(loaded)   # its buffers are not in the checkpoint
    model.load_state_dict(state_of(tensors, dtype), strict=True, assign=True)
    model.model.rotary_emb = rotary
    return model.eval()


@torch.no_grad()
def logits_of(model, ids: list[int], rows: list[int], first_position: int = 0) -> np.ndarray:
    """Logits [rows, vocabulary] of one pass over `ids`, the first at position `first_position`."""
    tokens = torch.tensor([ids])
    positions = torch.arange(first_position, first_position + len(ids))[None]
    out = model(input_ids=tokens, position_ids=positions, attention_mask=torch.ones_like(tokens), use_cache=False,
                logits_to_keep=torch.tensor(rows))
    return out.logits[0].double().numpy()


def versions() -> dict[str, str]:
    return {"torch": torch.__version__, "transformers": transformers.__version__, "numpy": np.__version__}
