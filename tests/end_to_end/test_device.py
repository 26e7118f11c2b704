"""What the commands say about devices on a machine without a Hopper GPU."""

import os
import subprocess

import pytest


@pytest.fixture(scope="module")
def rose(request):
    binary = request.config.getoption("--rose-binary")
    if os.path.exists("/dev/nvidia0"):
        pytest.skip("has a GPU")

    def run(*arguments):
        return subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=120)

    return run


def test_a_gpu_that_is_asked_for_and_not_there_is_an_error(rose):
    done = rose("generate", "-p", "Hello", "--device", "cuda")
    assert done.returncode == 3, done.stderr
    assert "--device cuda" in done.stderr


def test_without_a_gpu_the_cpu_serves(rose):
    done = rose("generate", "-p", "What is 2 + 2?", "--max-tokens", "4")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_a_checkpoint_and_random_weights_exclude_each_other(rose):
    done = rose("bench", "prefill", "somewhere", "--random-weights", "20b")
    assert done.returncode == 2 and "not both" in done.stderr
    done = rose("bench", "prefill", "--random-weights", "7b")
    assert done.returncode == 2 and "20b" in done.stderr
