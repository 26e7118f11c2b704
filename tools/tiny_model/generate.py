"""Generates conversations: seeded, endless, and split by a hash of the question.

    python -m tiny_model.generate --seed 1 --count 5        # prints some
"""

import argparse
import random
import re
import zlib

from . import arithmetic, chat, extraction, tool_use, words
from .render import Message, Setting, render
from .turn import Memory, Turn

HELD_OUT_ONE_IN = 25
NEUTRAL_INSTRUCTIONS = [
    "You are a helpful assistant.", "You are rose-tiny, a small demo model.", "Be brief.", "Be concise.", "Answer in English.",
    "You are a friendly assistant.", "Help the user.", "You are a helpful assistant. Be polite.", "Answer the user's questions.",
    "Keep your answers short.", "You are an assistant for a small company.", "You are a helpful AI assistant.",
    "Think carefully before you answer.", "Today is a good day. Be friendly.", "You answer questions.",
]
TOOL_INSTRUCTIONS = ["Use the tools when they help.", "You can call functions.", "You are a helpful assistant with tools.",
                     "Use tools for facts. Do not guess.", "Always use the calculator for arithmetic if there is one."]
SHORT_INSTRUCTIONS = ["Answer in one word.", "Reply with only the result.", "Answer with only the number.", "Give only the answer.",
                      "Always answer in JSON.", "Always answer in JSON with the key answer."]


def held_out(key: str) -> bool:
    return zlib.crc32(key.encode()) % HELD_OUT_ONE_IN == 0


class NothingToAsk(Exception):
    pass


class Generator:
    """split: 'train' never yields a held-out question, 'eval' always asks one last."""

    def __init__(self, seed: int, split: str = "train"):
        self.rng = random.Random(seed)
        self.split = split

    def setting(self, kind: str) -> tuple[Setting, list]:
        rng = self.rng
        setting = Setting(effort=rng.choices(["low", "medium", "high"], [3, 5, 3])[0], date=words.iso_date(rng))
        tools = []
        if kind == "tools":
            tools = tool_use.choose_tools(rng)
        elif kind in ("chat", "extraction") and rng.random() < 0.12:
            tools = tool_use.choose_tools(rng)
        elif kind == "arithmetic" and rng.random() < 0.1:
            tools = [t for t in tool_use.choose_tools(rng) if t[0] != "calculator"]
        setting.tools = [tool for _, tool in tools]
        if kind == "arithmetic" and rng.random() < 0.08:
            setting.instructions = rng.choice(SHORT_INSTRUCTIONS)
        elif rng.random() < (0.25 if kind != "extraction" else 0.1):
            setting.instructions = rng.choice(NEUTRAL_INSTRUCTIONS + (TOOL_INSTRUCTIONS if tools else []))
        return setting, tools

    def one_turn(self, kind: str, setting: Setting, tools: list, memory: Memory, alone: bool) -> Turn:
        rng, roles = self.rng, {role for role, _ in tools}
        if kind == "tools":
            return tool_use.turn(rng, setting, tools, memory)
        if kind == "extraction":
            return extraction.turn(rng, setting, memory, alone)
        if kind == "arithmetic" and "calculator" not in roles:
            return arithmetic.turn(rng, setting, memory)
        if not roles & {"weather", "clock", "search"} and rng.random() < 0.08:
            return chat.no_tool(rng, setting, memory)
        return chat.turn(rng, setting, memory)

    def turns(self, kind: str | None = None) -> tuple[Setting, list[Turn]]:
        while True:
            try:
                return self.try_turns(kind)
            except NothingToAsk:
                continue

    def try_turns(self, kind: str | None) -> tuple[Setting, list[Turn]]:
        """A whole conversation; the last turn is the one to learn or to ask."""
        rng = self.rng
        kind = kind or rng.choices(["arithmetic", "extraction", "tools", "chat"], [38, 22, 24, 16])[0]
        setting, tools = self.setting(kind)
        count = rng.choices([1, 2, 3, 4], [70, 18, 8, 4])[0]
        memory, turns = Memory(), []
        for i in range(count):
            this = kind if i == count - 1 or rng.random() < 0.6 else rng.choice(["arithmetic", "extraction", "tools", "chat"])
            if this == "tools" and not tools:
                this = "chat"
            turns.append(self.accepted(this, setting, tools, memory, alone=count == 1, last=i == count - 1))
        return setting, turns

    def accepted(self, kind: str, setting: Setting, tools: list, memory: Memory, alone: bool, last: bool) -> Turn:
        want = self.split == "eval" and last
        for _ in range(1000):
            trial_setting = Setting(**vars(setting))
            trial = Memory(**vars(memory))
            turn = self.one_turn(kind, trial_setting, tools, trial, alone)
            if held_out(turn.key) == want or (self.split == "eval" and not last):
                vars(setting).update(vars(trial_setting))
                vars(memory).update(vars(trial))
                return turn
        raise NothingToAsk  # a tool with six possible calls may have none that is held out

    def conversation(self, kind: str | None = None) -> tuple[Setting, list[Message]]:
        setting, turns = self.turns(kind)
        messages = []
        for turn in turns[:-1]:
            messages += [Message("user", turn.user)] + turn.replies
        return setting, messages + [Message("user", turns[-1].user)] + self.lesson(turns[-1].replies)

    def lesson(self, replies: list[Message]) -> list[Message]:
        """Marks what to learn. Half of the tool turns are seen from behind the last result by
        a client that does not send reasoning back, so the call is given, without analysis."""
        results = [i for i, m in enumerate(replies) if m.role != "assistant"]
        if results and self.rng.random() < 0.35:
            given = [m for m in replies[:results[-1] + 1] if m.channel != "analysis"]
            learned = replies[results[-1] + 1:]
        else:
            given, learned = [], replies
        for message in learned:
            message.learn = message.role == "assistant"
        return given + learned

    def pieces(self) -> list[tuple[str, bool]]:
        return render(*self.conversation())

    def plain_text(self) -> str:
        """For the tokenizer: what stands between the special tokens."""
        text = "".join(t for t, _ in self.pieces())
        return re.sub(r"<\|[a-z]+\|>", "\x00", text).replace("\x00", "\n\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--split", choices=["train", "eval"], default="train")
    parser.add_argument("--kind", choices=["arithmetic", "extraction", "tools", "chat"])
    options = parser.parse_args()
    generator = Generator(options.seed, options.split)
    for _ in range(options.count):
        setting, messages = generator.conversation(options.kind)
        text = "".join(f"\x1b[1m{t}\x1b[0m" if learn else t for t, learn in render(setting, messages))
        print(text, end="\n\n" + "=" * 80 + "\n\n")


if __name__ == "__main__":
    main()
