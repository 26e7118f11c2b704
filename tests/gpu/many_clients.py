#!/usr/bin/env python3
"""many_clients.py URL [--clients 64]: the same questions one after another and all at once, at temperature 0.

Every answer of the crowd is compared with its solo answer. Equal is the rule. Kernels' sums, and with MXFP4 experts
the format of activations (bf16 up to eight rows a step, e4m3 beyond), depend on how many rows a step has; so two
tokens that are nearly as likely may change places. Where answers part, both tokens must be as likely within --tie
nats, by exact arithmetic if a reference is there (--save FILE with the same options on a CPU, then --reference FILE),
else by the solo run; and the gap between them may have changed by no more than that of the two likeliest tokens does
elsewhere. Else it fails.
"""

import argparse
import concurrent.futures
import json
import math
import random
import sys
import time
import urllib.request
from pathlib import Path

WORDS = "amber birch cedar delta ember fjord grove heron inlet jasper kettle lagoon maple nectar ocean pebble".split()


def question(number: int) -> str:
    dice = random.Random(number)
    kind = number % 4
    if kind == 0:
        return f"What is {dice.randint(100, 999)} + {dice.randint(100, 999)}?"
    if kind == 1:
        return f"What is {dice.randint(10, 99)} * {dice.randint(2, 9)}?"
    if kind == 2:
        return f"Repeat the words: {' '.join(dice.sample(WORDS, 5))}"
    return f"How many letters has the word {dice.choice(WORDS)}?"


def model_at(url: str) -> str:
    with urllib.request.urlopen(f"{url}/v1/models", timeout=30) as response:
        return json.load(response)["data"][0]["id"]


def ask(url: str, model: str, number: int) -> dict:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": question(number)}],
        "temperature": 0,
        "max_tokens": 200,
        "logprobs": True,
        "top_logprobs": 5,
    }
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.load(response)["choices"][0]


def text_of(choice: dict) -> str:
    message = choice["message"]
    return f"{message.get('reasoning') or ''} | {message.get('content') or ''}"


def gap(entry: dict, first: str, second: str) -> float:
    """How much likelier the first token is, in nats; NaN if one is not among those told."""
    told = {other["token"]: other["logprob"] for other in entry["top_logprobs"]}
    return told.get(first, math.nan) - told.get(second, math.nan)


def compare(solo: dict, crowd: dict) -> tuple[list[float], dict | None]:
    """Changes of the gap at the positions before both part; and where that is: tokens, solo gap, its change."""
    changes = []
    for at, (alone, other) in enumerate(zip(solo["logprobs"]["content"], crowd["logprobs"]["content"])):
        first, second = alone["token"], other["token"]
        if first != second:
            solo_gap = gap(alone, first, second)
            change = solo_gap - gap(other, first, second)
            return changes, {"at": at, "tokens": (first, second), "gap": solo_gap, "change": change}
        others = [entry["token"] for entry in alone["top_logprobs"] if entry["token"] != first]
        if others:
            changes.append(abs(gap(alone, first, others[0]) - gap(other, first, others[0])))
    return changes, None


def differing(solo: dict, crowd: dict) -> tuple[list[float], dict | None]:
    if solo["message"].get("reasoning") != crowd["message"].get("reasoning"):
        return [], {"tokens": None, "gap": math.inf, "change": math.inf}  # what went before is not told
    changes, parting = compare(solo, crowd)
    if parting is None and text_of(solo) != text_of(crowd):
        parting = {"tokens": None, "gap": math.inf, "change": math.inf}  # one ends where the other goes on
    return [change for change in changes if not math.isnan(change)], parting


def exact_gap(reference: dict, solo: dict, parting: dict) -> float:
    """The gap in the reference's run; NaN if that had said something else before."""
    at, told = parting.get("at"), reference["logprobs"]["content"]
    tokens = [[entry["token"] for entry in run["logprobs"]["content"][:at]] for run in (reference, solo)]
    same = reference["message"].get("reasoning") == solo["message"].get("reasoning") and tokens[0] == tokens[1]
    return abs(gap(told[at], *parting["tokens"])) if at is not None and same and at < len(told) else math.nan


def is_tie(parting: dict, most: float, nats: float) -> bool:
    return parting["gap"] <= nats and parting["change"] <= most


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--tie", type=float, default=0.1, help="nats (default 0.1)")
    parser.add_argument("--save", type=Path, help="write the solo answers, as a reference, and end")
    parser.add_argument("--reference", type=Path, help="what --save wrote")
    options = parser.parse_args()
    numbers = range(options.clients)
    model = model_at(options.url)
    begin = time.monotonic()
    solo = [ask(options.url, model, n) for n in numbers]
    solo_s = time.monotonic() - begin
    if options.save:
        options.save.write_text(json.dumps(solo))
        return 0
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(options.clients) as pool:
        crowd = list(pool.map(lambda n: ask(options.url, model, n), numbers))
    crowd_s = time.monotonic() - begin
    results = [differing(solo[n], crowd[n]) for n in numbers]
    changes = sorted(change for of_answer, _ in results for change in of_answer)
    partings = {n: parting for n, (_, parting) in enumerate(results) if parting is not None}
    print(
        f"{options.clients} clients: one after another {solo_s:.2f} s, at once {crowd_s:.2f} s; {len(partings)} answers differ\n"
        f"gap of the two likeliest tokens, solo against crowd, at {len(changes)} positions: changes by "
        f"{changes[len(changes) // 2]:.3f} nats in the median, {changes[-1]:.3f} at most"
    )
    reference = json.loads(options.reference.read_text()) if options.reference else None
    for n, parting in partings.items():
        if reference:
            parting["gap"] = exact_gap(reference[n], solo[n], parting)
        print(f"  {question(n)}\n    alone: {text_of(solo[n])}\n    crowd: {text_of(crowd[n])}")
        verdict = "a tie" if is_tie(parting, changes[-1], options.tie) else "NO TIE"
        print(f"    {parting['tokens']}: gap {parting['gap']:.3f}, changed by {parting['change']:.3f}: {verdict}")
    return 0 if all(is_tie(parting, changes[-1], options.tie) for parting in partings.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
