"""rose bench on the embedded model: what it prints, and that the figures of a row agree with each other."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"
CONDITIONS = {
    "card", "driver", "sm_clock_mhz_before", "sm_clock_mhz_after", "power_w_before", "power_w_after", "temperature_c",
    "version", "commit", "command", "date",
}  # fmt: skip


@pytest.fixture(scope="session")
def bench(request, tmp_path_factory):
    """bench(*arguments) -> (finished process, rows of its JSON file)."""
    binary = request.config.getoption("--rose-binary")
    model = request.config.getoption("--rose-model")

    def run(what, *arguments):
        path = tmp_path_factory.mktemp("bench") / "rows.jsonl"
        positional = [model] if model and what != "ops" else []
        command = [binary, "bench", *([what] if what else []), *positional, *arguments, "--json", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return done, rows

    return run


def check_times(row, repeats):
    assert CONDITIONS <= row.keys()
    assert row["n"] == repeats
    assert 0 < row["seconds_p10"] <= row["seconds"] <= row["seconds_p90"]
    assert row["layout"] == "EP1 DP1 TP1" and row["gpus"] == 1
    assert "bench" in row["command"] and row["date"].endswith("Z")


def test_prefill_gives_seconds_and_dollars_for_each_length(bench):
    done, rows = bench("prefill", "--lengths", "32,100", "--repeat", "3", "--gpu-hour-price", "7.5")
    assert done.returncode == 0, done.stderr
    prefill = [r for r in rows if r["what"] == "prefill"]
    assert [r["tokens"] for r in prefill] == [32, 100]
    for row in prefill:
        check_times(row, 3)
        dollars = row["gpus"] * row["seconds"] * 7.5 / 3600 / row["tokens"] * 1e6
        assert row["dollars_per_million_tokens"] == pytest.approx(dollars, rel=1e-9)
        assert row["tokens_per_s"] == pytest.approx(row["tokens"] / row["seconds"])
        assert f"${dollars:.3f}" in done.stdout
        assert "published_seconds" not in row or row["model"].startswith("gpt-oss")
    assert "EP1 DP1 TP1" in done.stdout
    assert "prefill, 100 tokens" in done.stderr and "prefill, 100 tokens" not in done.stdout


def test_decode_counts_only_steps_in_which_all_decode(bench):
    done, rows = bench("decode", "--batch", "1,5", "--context", "40", "--steps", "12", "--repeat", "2")
    assert done.returncode == 0, done.stderr
    decode = [r for r in rows if r["what"] == "decode"]
    assert [(r["batch"], r["context"], r["steps"]) for r in decode] == [(1, 40, 12), (5, 40, 12)]
    for row in decode:
        check_times(row, 2)
        assert row["tokens_per_s"] == pytest.approx(row["batch"] / row["seconds"])
        assert row["tokens_per_s_per_sequence"] == pytest.approx(1 / row["seconds"])
        dollars = 3.0 / 3600 / row["tokens_per_s"] * 1e6
        assert row["dollars_per_million_tokens"] == pytest.approx(dollars)
        assert 0 < row["weight_bytes"] <= row["weight_bytes_in_memory"]
        assert row["weight_bytes_per_s"] == pytest.approx(row["weight_bytes"] / row["seconds"])


def test_a_batch_larger_than_the_defaults_decodes_at_once(bench):
    done, rows = bench("decode", "--batch", "96", "--context", "4", "--steps", "4", "--repeat", "1")
    assert done.returncode == 0, done.stderr
    assert [r["batch"] for r in rows if r["what"] == "decode"] == [96]


def test_the_short_form_does_both(bench):
    done, rows = bench(None, "--lengths", "16", "--batch", "2", "--context", "8", "--steps", "4", "--repeat", "1")
    assert done.returncode == 0, done.stderr
    assert [r["what"] for r in rows] == ["prefill", "decode", "memory"]
    assert rows[-1]["process_peak_mib"] > 0


def test_a_length_beyond_the_context_is_left_out_and_said(bench):
    done, rows = bench("prefill", "--lengths", "64,4096", "--max-model-len", "512", "--repeat", "1")
    assert done.returncode == 0, done.stderr
    assert [r["tokens"] for r in rows if r["what"] == "prefill"] == [64]
    assert "4096 tokens is left out" in done.stderr
    done, _ = bench("prefill", "--lengths", "4096", "--max-model-len", "512", "--repeat", "1")
    assert done.returncode == 2 and "--lengths" in done.stderr


def test_a_batch_that_the_kv_memory_cannot_hold_is_no_result(bench):
    done, rows = bench(
        "decode", "--batch", "8", "--context", "400", "--steps", "64", "--repeat", "1", "--kv-memory", "0.005",
        "--max-model-len", "512",
    )  # fmt: skip
    assert done.returncode == 1, done.stdout
    assert "--kv-memory" in done.stderr
    assert not [r for r in rows if r["what"] == "decode"]


def test_hashed_logits_are_those_of_the_run_before_and_have_no_times(bench):
    shapes = ("--lengths", "16,40", "--batch", "1,5", "--context", "40", "--steps", "6", "--hash-logits")
    hashes = []
    for more in ((), ("--repeat", "3"), ("--dense", "fp8")):
        done, rows = bench(None, *shapes, *more)
        assert done.returncode == 0, done.stderr
        logits = [r for r in rows if r["what"] == "logits"]
        assert [r["what"] for r in rows] == ["logits"] * 4 + ["memory"]
        assert [(r["batch"], r["context"], r["steps"]) for r in logits] == [(1, 16, 0), (1, 40, 0), (1, 40, 6), (5, 40, 6)]
        for row in logits:
            assert CONDITIONS <= row.keys()
            assert not [key for key in row if "seconds" in key or "per_s" in key or "dollars" in key]
            assert row["logits_hash"] in done.stdout
        assert "tokens/s" not in done.stdout and "ms" not in done.stdout.split() and "$" not in done.stdout
        hashes.append([r["logits_hash"] for r in logits])
    assert hashes[0] == hashes[1]
    assert len(set(hashes[0] + hashes[2])) == 8  # every row adds to the hash, and other weights give others
    done, rows = bench("decode", "--batch", "129", "--context", "4", "--steps", "2", "--hash-logits")
    assert done.returncode == 2 and "--batch" in done.stderr and not rows


def test_ops_lists_its_rows_without_a_gpu(bench):
    done, _ = bench("ops", "--list", "--filter", "experts of 128")
    assert done.returncode == 0
    assert "8192 rows balanced" in done.stdout and "attention" not in done.stdout
    done, _ = bench("ops", "--list", "--filter", "gather", "--filter", "copy pages, 1 ")
    assert done.returncode == 0
    assert {line.split()[0] for line in done.stdout.splitlines()[1:]} == {"gather", "copy"}
    done, _ = bench("ops", "--list", "--filter", "nothing of the kind")
    assert done.returncode == 2 and "nothing of the kind" in done.stderr and "--list" in done.stderr


def test_each_command_shows_its_own_help(bench):
    for what, option in (("prefill", "--lengths"), ("decode", "--batch"), ("ops", "--filter")):
        done, _ = bench(what, "--help")
        assert done.returncode == 0 and option in done.stdout
        assert f"rose bench {what} " in done.stdout  # an example


def test_a_checkpoint_may_stand_behind_a_list(bench):
    done, rows = bench("prefill", "--lengths", "16,32", "models/nothing-here", "--repeat", "1")
    assert done.returncode == 4 and "nothing-here" in done.stderr and not rows


def test_usage_errors_say_what_is_wrong(bench):
    for arguments in (["prefill", "--lengths", "0"], ["decode", "--batch", "none"], ["prefil"]):
        done, _ = bench(*arguments)
        assert done.returncode in (2, 4), arguments
        assert done.stderr


def test_tables_and_pictures_are_made_of_its_rows(bench, tmp_path):
    done, rows = bench("prefill", "--lengths", "32", "--repeat", "1")
    assert done.returncode == 0, done.stderr
    lines, picture = tmp_path / "rows.jsonl", tmp_path / "out.png"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tables = subprocess.run([sys.executable, TOOLS / "bench_tables", lines], capture_output=True, text=True, timeout=60)
    assert tables.returncode == 0 and "| EP1 DP1 TP1 |" in tables.stdout, tables.stderr
    drawn = subprocess.run([sys.executable, TOOLS / "plot_bench", lines, "-o", picture], capture_output=True, text=True, timeout=120)
    assert drawn.returncode == 0 and picture.read_bytes().startswith(b"\x89PNG"), drawn.stderr
