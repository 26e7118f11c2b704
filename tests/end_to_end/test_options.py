"""Options as files and environment, and the log as lines of JSON."""
import json
import os
import subprocess

import pytest


@pytest.fixture
def rose_binary(request):
    return request.config.getoption("--rose-binary")


def config_of(binary, *words, env=None):
    done = subprocess.run([binary, *words, "--print-config"], capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def values(config):
    """Lists are written as [1,2] or [1, 2], and of one element as [1] or 1."""
    return [line.replace(", ", ",").replace("=[", "=").removesuffix("]") for line in config.splitlines()]


@pytest.mark.parametrize("words", [
    ["serve", "a checkpoint", "--port", "9", "--no-prefix-cache", "--max-context", "4K", "--allowed-origins", "a,b"],
    ["bench"],
    ["bench", "prefill", "--lengths", "5,6"],
    ["bench", "decode"],
], ids=lambda words: "_".join(words[:2]))
def test_a_printed_config_brings_the_same_options(rose_binary, tmp_path, words):
    printed = config_of(rose_binary, *words)
    file = tmp_path / "rose.toml"
    file.write_text(printed)
    command = [word for word in words[:2] if word in ("serve", "bench", "prefill", "decode")]
    again = config_of(rose_binary, "--config", str(file), *command)
    assert values(again) == values(printed)


def test_a_config_shows_defaults_flags_and_the_environment(rose_binary):
    printed = config_of(rose_binary, "serve", "--no-prefix-cache", env={**os.environ, "ROSE_PORT": "77"}).splitlines()
    assert "serve.port=77" in printed
    assert "serve.prefix-cache=false" in printed
    assert "serve.reasoning-field=\"reasoning\"" in printed
    assert "# serve.watchdog-timeout is not set" in printed


def test_a_config_never_shows_a_key(rose_binary):
    printed = config_of(rose_binary, "serve", "--api-key", "s3cret")
    assert "s3cret" not in printed
    assert "# serve.api-key is set" in printed


def test_the_log_as_json(rose_binary, tmp_path):
    missing = tmp_path / "no\nmodel"
    done = subprocess.run([rose_binary, "serve", str(missing), "--port", "0", "--log-format", "json"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 4
    records = [json.loads(line) for line in done.stderr.splitlines()]
    assert [sorted(record) for record in records] == [["level", "message", "time"]] * len(records)
    assert records[0]["level"] == "info" and "listening on" in records[0]["message"]
    assert records[-1]["level"] == "critical" and str(missing) in records[-1]["message"]
