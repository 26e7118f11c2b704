"""The formats of the KV cache, through the commands."""

import re
import subprocess

import pytest

PROMPT = (
    "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n\nReasoning: low\n\n"
    "# Valid channels: analysis, commentary, final. Channel must be included for every message.<|end|>"
    "<|start|>user<|message|>What is 123 + 456?<|end|><|start|>assistant"
)


@pytest.fixture(scope="module")
def generate(request):
    binary = request.config.getoption("--rose-binary")
    model = request.config.getoption("--rose-model")

    def run(*arguments):
        command = [binary, "generate", *([model] if model else []), "--specials", "--temperature", "0", "-n", "80"]
        return subprocess.run([*command, "-p", PROMPT, *arguments], capture_output=True, text=True, timeout=120)

    return run


@pytest.mark.trained
@pytest.mark.parametrize("dtype", ["auto", "bf16", "fp8"])
def test_the_answer_is_right_in_every_format(generate, dtype):
    done = generate("--kv-cache-dtype", dtype)
    assert done.returncode == 0, done.stderr
    assert "579" in done.stdout


def test_auto_is_bf16(generate):
    assert generate().stdout == generate("--kv-cache-dtype", "bf16").stdout


def test_a_context_needs_half_the_memory_in_fp8(generate):
    def needed(dtype):
        done = generate("--max-model-len", "65536", "--kv-memory", "0.001", "--kv-cache-dtype", dtype)
        assert done.returncode == 3, done.stderr
        return float(re.search(r"needs ([\d.]+) MiB", done.stderr).group(1))

    assert needed("fp8") == pytest.approx(needed("bf16") / 2, rel=0.01)


def test_an_unknown_format_is_an_error_of_usage(generate):
    done = generate("--kv-cache-dtype", "fp4")
    assert done.returncode == 2 and "fp8" in done.stderr
