#!/usr/bin/env python3
"""many_clients.py URL [--clients 64]: the same questions one after another and all at once, at temperature 0.

Every answer of the crowd is compared with its solo answer. Equal is the rule. Where a kernel's sums depend on how many
rows a step has, two tokens that are nearly as likely may change places: a difference is one such if at the first token
that differs the solo run gave both tokens probabilities within --tie nats of each other. Any other difference fails.
"""

import argparse
import concurrent.futures
import json
import random
import sys
import time
import urllib.request

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


def tie(solo: dict, crowd: dict, nats: float) -> str | None:
    """What the first difference is about, if it is a tie of two tokens."""
    if solo["message"].get("reasoning") != crowd["message"].get("reasoning"):
        return None  # its tokens' probabilities are not told
    for alone, other in zip(solo["logprobs"]["content"], crowd["logprobs"]["content"]):
        if alone["token"] == other["token"]:
            continue
        there = {entry["token"]: entry["logprob"] for entry in alone["top_logprobs"]}
        if there.get(other["token"], float("-inf")) < alone["logprob"] - nats:
            return None
        return f"{alone['token']!r} {alone['logprob']:.3f}, {other['token']!r} {there[other['token']]:.3f}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--tie", type=float, default=0.1, help="nats (default 0.1)")
    options = parser.parse_args()
    numbers = range(options.clients)
    model = model_at(options.url)
    begin = time.monotonic()
    solo = [ask(options.url, model, n) for n in numbers]
    solo_s = time.monotonic() - begin
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(options.clients) as pool:
        crowd = list(pool.map(lambda n: ask(options.url, model, n), numbers))
    crowd_s = time.monotonic() - begin
    different = [n for n in numbers if text_of(solo[n]) != text_of(crowd[n])]
    ties = {n: tie(solo[n], crowd[n], options.tie) for n in different}
    print(
        f"{options.clients} clients: one after another {solo_s:.2f} s, at once {crowd_s:.2f} s; {len(different)} answers "
        f"differ, {sum(what is not None for what in ties.values())} of them by a tie"
    )
    for n, what in ties.items():
        print(f"  {question(n)}\n    alone: {text_of(solo[n])}\n    crowd: {text_of(crowd[n])}\n    {what or 'NO TIE'}")
    return 1 if None in ties.values() else 0


if __name__ == "__main__":
    sys.exit(main())
