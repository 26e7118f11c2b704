"""MXFP4: four-bit e2m1 codes that share one power-of-two scale in groups of 32.

Used twice: as fake quantization while training, so that the weights learn to live
on the grid, and for packing the result. Both go through `quantize`, so what ships is
what was trained.
"""

import torch

GROUP = 32
E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
EXPONENT_BIAS = 127


def group_exponent(amax: torch.Tensor) -> torch.Tensor:
    """Exponent of the scale: the largest value of the group lands in (3.5, 7].

    Seven rather than six as the limit: clipping 6..7 to 6 costs less than halving
    the resolution of the other 31 values. The exponent is read from the bits because
    log2 may round differently on another device.
    """
    floor_log2 = (amax.float().contiguous().view(torch.int32) >> 23) - EXPONENT_BIAS
    exponent = floor_log2 - 2
    exponent = exponent + (amax > 7.0 * torch.exp2(exponent.float())).int()
    return exponent.clamp(-100, 100)


def round_e2m1(magnitude: torch.Tensor) -> torch.Tensor:
    fine = torch.round(magnitude * 2.0) * 0.5
    medium = torch.round(magnitude)
    coarse = torch.round(magnitude * 0.5) * 2.0
    rounded = torch.where(magnitude < 2.0, fine, torch.where(magnitude < 4.0, medium, coarse))
    return rounded.clamp(max=6.0)


def quantize(grouped: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """grouped has the 32 members of a group along dim. Returns (values / scale, exponent)."""
    exponent = group_exponent(grouped.abs().amax(dim=dim, keepdim=True))
    scaled = grouped * torch.exp2(-exponent.float())
    return torch.sign(scaled) * round_e2m1(scaled.abs()), exponent


def fake_quantize(weight: torch.Tensor) -> torch.Tensor:
    """weight: [experts, in, out], groups along `in`. Straight-through gradient."""
    experts, rows, columns = weight.shape
    with torch.no_grad():
        grouped = weight.reshape(experts, rows // GROUP, GROUP, columns)
        codes, exponent = quantize(grouped, dim=2)
        quantized = (codes * torch.exp2(exponent.float())).reshape(weight.shape)
        delta = quantized - weight
    return weight + delta


def pack(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """weight: [experts, in, out] -> blocks [experts, out, in/32, 16] u8, scales [experts, out, in/32] u8.

    The published layout keeps [out, in] order; the even element sits in the low nibble.
    """
    experts, rows, columns = weight.shape
    grouped = weight.float().transpose(1, 2).reshape(experts, columns, rows // GROUP, GROUP)
    values, exponent = quantize(grouped, dim=3)
    codes = torch.searchsorted(E2M1.to(values.device), values.abs().contiguous())
    codes = (codes | (values < 0).long() << 3).to(torch.uint8)
    blocks = codes[..., 0::2] | (codes[..., 1::2] << 4)
    scales = (exponent.squeeze(3) + EXPONENT_BIAS).to(torch.uint8)
    return blocks.contiguous(), scales.contiguous()


def unpack(blocks: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """The inverse of pack, written from the format alone: [experts, in, out] float."""
    table = torch.cat([E2M1, -E2M1])
    codes = torch.stack([blocks & 15, blocks >> 4], dim=-1).flatten(-2).long()
    values = table[codes] * torch.exp2(scales.float() - EXPONENT_BIAS).unsqueeze(-1)
    return values.flatten(-2).transpose(1, 2).contiguous()
