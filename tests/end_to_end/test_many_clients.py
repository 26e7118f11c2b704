"""The crowd of tests/gpu/many_clients.py: on a CPU every answer is the solo one; what counts as a tie."""

import math
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[1] / "gpu" / "many_clients.py"
sys.path.insert(0, str(SCRIPT.parent))
import many_clients  # noqa: E402


def test_a_crowd_on_a_cpu_gets_the_solo_answers(server):
    command = [sys.executable, SCRIPT, server.url, "--clients", "8"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 answers differ" in done.stdout


def answer(*tokens, reasoning="r"):
    """tokens: (the one taken, its logprob, another, its logprob)."""
    content = [
        {"token": a, "logprob": p, "top_logprobs": [{"token": a, "logprob": p}, {"token": b, "logprob": q}]}
        for a, p, b, q in tokens
    ]
    return {"message": {"reasoning": reasoning, "content": ""}, "logprobs": {"content": content}}


def verdict(solo, crowd, most=0.1):
    _, parting = many_clients.differing(solo, crowd)
    return many_clients.is_tie(parting, most, 0.1)


def test_only_tokens_that_are_nearly_as_likely_are_a_tie():
    solo = answer(("a", -0.1, "b", -3.0), ("del", -2.097, "5", -2.111), ("ta", 0.0, "x", -9.0))
    assert verdict(solo, answer(("a", -0.1, "b", -3.0), ("5", -2.1, "del", -2.12)))
    assert not verdict(solo, answer(("a", -0.1, "b", -3.0), ("5", -1.9, "del", -2.12)))  # changed by more than elsewhere
    assert not verdict(solo, answer(("b", -3.0, "a", -0.1)), most=9)  # far less likely
    assert not verdict(solo, answer(("a", -0.1, "b", -3.0), ("never", -2.1, "5", -2.1)))
    assert not verdict(solo, answer(("5", -2.1, "del", -2.1), reasoning="another"))


def test_how_much_the_gap_of_the_two_likeliest_changes():
    solo = answer(("a", -0.1, "b", -3.0), ("c", -0.2, "d", -2.0), ("e", -0.1, "f", -3.0))
    crowd = answer(("a", -0.1, "b", -3.1), ("c", -0.2, "never", -2.0), ("e", -0.2, "f", -2.7))
    changes, parting = many_clients.differing(solo, crowd)
    assert parting is None
    assert [round(change, 6) for change in changes] == [0.1, 0.4]


def test_a_reference_says_whether_tokens_tie():
    solo = answer(("a", -0.1, "b", -3.0), ("c", -1.1, "d", -1.4))
    crowd = answer(("a", -0.1, "b", -3.0), ("d", -1.2, "c", -1.3))
    _, parting = many_clients.differing(solo, crowd)
    assert not many_clients.is_tie(parting, 9, 0.1)  # by the solo run
    near = answer(("a", -0.1, "b", -3.0), ("d", -1.20, "c", -1.25))
    assert round(many_clients.exact_gap(near, solo, parting), 6) == 0.05
    for other in (answer(("x", -0.1, "b", -3.0), ("d", -1.20, "c", -1.25)), answer(("a", -0.1, "b", -3.0))):
        assert math.isnan(many_clients.exact_gap(other, solo, parting))  # said something else before, or less
    assert not many_clients.is_tie({**parting, "gap": math.nan}, 9, 0.1)
