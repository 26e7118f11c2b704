"""One turn of a conversation: what the user says and what the model does about it."""

import dataclasses
import random

from .render import Message, Setting


@dataclasses.dataclass
class Turn:
    user: str
    replies: list[Message]
    kind: str
    key: str  # decides whether the question is held out: the problem itself, not its wording
    expect: dict = dataclasses.field(default_factory=dict)  # what evaluation checks


@dataclasses.dataclass
class Memory:
    """What earlier turns left behind for follow-ups."""

    number: int | None = None
    city: str | None = None
    weather_tool: dict | None = None
    name: str | None = None


def analysis(text: str) -> Message:
    return Message("assistant", text, channel="analysis")


def final(text: str) -> Message:
    return Message("assistant", text, channel="final")


def call(tool: str, arguments: str) -> Message:
    return Message("assistant", arguments, channel="commentary", recipient=f"functions.{tool}")


def result(tool: str, text: str) -> Message:
    return Message(f"functions.{tool}", text)


def answer(setting: Setting, thoughts: dict[str, str | None], text: str) -> list[Message]:
    """thoughts: effort -> analysis text, None for none."""
    thought = thoughts.get(setting.effort)
    return ([analysis(thought)] if thought else []) + [final(text)]


def pick(rng: random.Random, pairs: dict):
    return rng.choices(list(pairs), list(pairs.values()))[0]
