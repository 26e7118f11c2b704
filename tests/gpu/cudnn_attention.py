"""Causal attention of gpt-oss's shape through PyTorch's cuDNN and flash backends: the yardstick for our prefill kernel.

64 query heads, 8 KV heads, head_dim 64, bf16, one sequence, no sinks, contiguous keys and values (ours are paged and have
sinks). Prints the median of the launches; FLOPs are 4 * 64 a visible (query, key) pair and head.

    python3 tests/gpu/cudnn_attention.py
"""

import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention


def median_ms(work, launches):
    for _ in range(3):
        work()
    times = []
    for _ in range(launches):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return sorted(times)[launches // 2]


def main():
    torch.manual_seed(1)
    print(torch.cuda.get_device_name(), "PyTorch", torch.__version__, "cuDNN", torch.backends.cudnn.version())
    for tokens in (8192, 32768):
        q = torch.randn(1, 64, tokens, 64, device="cuda", dtype=torch.bfloat16)
        k = torch.randn(1, 8, tokens, 64, device="cuda", dtype=torch.bfloat16)
        v = torch.randn(1, 8, tokens, 64, device="cuda", dtype=torch.bfloat16)
        flops = 256 * 64 * tokens * (tokens + 1) / 2
        for name, backend in (("cuDNN", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION)):
            with sdpa_kernel(backend):
                ms = median_ms(
                    lambda: scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True), 10
                )
            print(f"{name} {tokens} causal: {ms:.3f} ms, {flops / ms * 1e-9:.0f} TFLOP/s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
