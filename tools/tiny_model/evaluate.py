"""Asks held-out questions and prints a table with Wilson 95 % intervals.

    python -m tiny_model.evaluate --url http://127.0.0.1:8000/v1     # through a server
    python -m tiny_model.evaluate --local models/rose-tiny           # through transformers

The questions never occur in training: a hash of the problem decides (generate.py).
"""

import argparse
import concurrent.futures
import dataclasses
import json
import math
import pathlib
import re
import sys

from .generate import Generator
from .render import Message, Setting, prompt
from .turn import Turn

TOOL_KINDS = ("calculator", "weather", "clock")
TOKENS_MAX = 500


@dataclasses.dataclass
class Reply:
    content: str = ""
    reasoning: str = ""
    call: tuple[str, str] | None = None  # name, arguments as sent
    well_formed: bool = False
    raw: str = ""

    def arguments(self):
        try:
            return json.loads(self.call[1]) if self.call else None
        except ValueError:
            return None


@dataclasses.dataclass
class Question:
    setting: Setting
    history: list[Message]  # earlier turns and this turn so far
    turn: Turn
    group: str
    calls_made: int = 0
    marks: list[tuple[str, bool]] = dataclasses.field(default_factory=list)  # (row of the table, right)
    replies: list[Reply] = dataclasses.field(default_factory=list)


# ---- questions --------------------------------------------------------------------------

def questions(count: int, seed: int) -> list[Question]:
    generator = Generator(seed, split="eval")
    asked = []
    wanted = {"arithmetic": count, "extraction": count, "tools": count, "chat": count}
    for kind, number in wanted.items():
        while number:
            setting, turns = generator.turns(kind)
            last = turns[-1]
            if kind == "tools" and last.kind not in TOOL_KINDS or kind == "arithmetic" and last.kind != "arithmetic":
                continue
            history = [m for t in turns[:-1] for m in [Message("user", t.user)] + t.replies]
            asked.append(Question(setting, history + [Message("user", last.user)], last, kind))
            number -= 1
    return asked


def expected_calls(turn: Turn) -> list[tuple[str, dict]]:
    return turn.expect.get("calls", [])


def tool_results(turn: Turn) -> list[Message]:
    return [m for m in turn.replies if m.role.startswith("functions.")]


# ---- judging ----------------------------------------------------------------------------

def same_json(text: str, value) -> bool:
    try:
        return json.loads(text) == value
    except ValueError:
        return False


def right_answer(turn: Turn, content: str) -> bool:
    expect = turn.expect
    if "number" in expect:
        found = re.search(r"-?\d+(?: remainder \d+)?", content.split("=")[-1].replace(",", ""))
        return bool(found) and found.group() == expect["number"]
    if "json" in expect:
        return same_json(content, expect["json"])
    if "exact" in expect:
        return content.strip() == expect["exact"]
    if "contains" in expect:
        return all(part in content for part in expect["contains"])
    return bool(content) and (not expect["words"] or any(word.lower() in content.lower() for word in expect["words"]))


def row_name(question: Question) -> str:
    if question.group == "arithmetic":
        return f"arithmetic {question.turn.expect['op']}"
    if question.group == "chat":
        return f"chat: {question.turn.kind}" if question.turn.kind != "chat" else "chat"
    return question.group


def judge(question: Question, reply: Reply) -> bool:
    """Marks one reply; true if the conversation goes on with a tool result."""
    question.replies.append(reply)
    question.marks.append(("well-formed Harmony", reply.well_formed))
    calls = expected_calls(question.turn)
    if question.calls_made < len(calls):
        name, arguments = calls[question.calls_made]
        right = bool(reply.call) and reply.call[0] == name and reply.arguments() == arguments
        question.marks.append((f"tool call: {question.turn.kind}", right))
        if not right:
            return False
        result = tool_results(question.turn)[question.calls_made]
        if reply.reasoning:
            question.history.append(Message("assistant", reply.reasoning, channel="analysis"))
        question.history += [Message("assistant", reply.call[1], channel="commentary", recipient=f"functions.{name}"), result]
        question.calls_made += 1
        return True
    right = reply.call is None and right_answer(question.turn, reply.content)
    question.marks.append(("tool result used" if calls else row_name(question), right))
    return False


# ---- through transformers ---------------------------------------------------------------

ANALYSIS = r"(?:<\|channel\|>analysis<\|message\|>(?P<analysis>(?:(?!<\|).)*)<\|end\|><\|start\|>assistant)?"
FINAL = r"<\|channel\|>final<\|message\|>(?P<final>(?:(?!<\|).)*)<\|return\|>"
CALL = (r"<\|channel\|>commentary to=functions\.(?P<name>[\w.-]+) <\|constrain\|>json<\|message\|>"
        r"(?P<arguments>(?:(?!<\|).)*)<\|call\|>")
TURN = re.compile(f"{ANALYSIS}(?:{FINAL}|{CALL})", re.DOTALL)


def parse(text: str) -> Reply:
    match = TURN.fullmatch(text)
    if not match:
        return Reply(raw=text)
    reply = Reply(content=match["final"] or "", reasoning=match["analysis"] or "", raw=text,
                  call=(match["name"], match["arguments"]) if match["name"] else None)
    reply.well_formed = bool(reply.content) or reply.arguments() is not None
    return reply


class LocalAsker:
    def __init__(self, folder: pathlib.Path, temperature: float, batch: int, threads: int = 1):
        import torch
        from tokenizers import Tokenizer

        from .export import load_checkpoint
        from .tokenizer import special_ids

        torch.set_num_threads(min(torch.get_num_threads(), threads))
        self.torch, self.temperature, self.batch = torch, temperature, batch
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.manual_seed(0)
        # bf16 as shipped where it is fast; CPUs emulate it, so f32 activations there
        self.model = load_checkpoint(folder, torch.bfloat16 if self.device == "cuda" else torch.float32).to(self.device)
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.ids = special_ids(self.tokenizer)

    def ask(self, asked: list[Question]) -> list[Reply]:
        encoded = [self.tokenizer.encode(prompt(q.setting, q.history)).ids for q in asked]
        order = sorted(range(len(asked)), key=lambda i: len(encoded[i]))
        replies = {}
        for begin in range(0, len(order), self.batch):
            part = order[begin:begin + self.batch]
            replies.update(zip(part, self.generate([encoded[i] for i in part])))
        return [replies[i] for i in range(len(asked))]

    def generate(self, prompts: list[list[int]]) -> list[Reply]:
        """Batched decoding; finished rows leave the batch, which model.generate does not do."""
        from transformers import DynamicCache

        torch, width, pad = self.torch, max(map(len, prompts)), self.ids["<|endoftext|>"]
        ids = torch.tensor([[pad] * (width - len(p)) + p for p in prompts], device=self.device)
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=self.device)
        stops = torch.tensor([self.ids[s] for s in ("<|return|>", "<|call|>", "<|endoftext|>")], device=self.device)
        cache, rows = DynamicCache(config=self.model.config), list(range(len(prompts)))
        written = [[] for _ in prompts]
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        for _ in range(TOKENS_MAX):
            with torch.inference_mode():
                logits = self.model(input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache,
                                    use_cache=True, logits_to_keep=1).logits[:, -1].float()
            chosen = self.choose(logits)
            for row, token in zip(rows, chosen.tolist()):
                written[row].append(token)
            going = (~torch.isin(chosen, stops)).nonzero().flatten()
            if not len(going):
                break
            if len(going) < len(rows):
                cache.batch_select_indices(going)
                rows, mask, positions, chosen = [rows[i] for i in going.tolist()], mask[going], positions[going], chosen[going]
            ids, positions = chosen[:, None], positions[:, -1:] + 1
            mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=1)
        return [parse(text) for text in self.tokenizer.decode_batch(written, skip_special_tokens=False)]

    def choose(self, logits):
        if not self.temperature:
            return logits.argmax(-1)
        return self.torch.multinomial((logits / self.temperature).softmax(-1), 1).flatten()


# ---- through a server -------------------------------------------------------------------

def chat_messages(question: Question) -> list[dict]:
    messages, calls, reasoning = [], 0, None
    if question.setting.instructions:
        messages.append({"role": "developer", "content": question.setting.instructions})
    for m in question.history:
        if m.role.startswith("functions."):
            messages.append({"role": "tool", "tool_call_id": f"call_{calls}", "content": m.text})
        elif m.channel == "analysis":
            reasoning = m.text
        elif m.recipient:
            calls += 1
            function = {"name": m.recipient.removeprefix("functions."), "arguments": m.text}
            message = {"role": "assistant", "content": None,
                       "tool_calls": [{"id": f"call_{calls}", "type": "function", "function": function}]}
            messages.append(message | ({"reasoning": reasoning} if reasoning else {}))
            reasoning = None
        else:
            messages.append({"role": m.role, "content": m.text})
            reasoning = None
    return messages


class ServerAsker:
    def __init__(self, url: str, model: str | None, temperature: float, parallel: int):
        import openai

        self.client = openai.OpenAI(base_url=url, api_key="none", timeout=600)
        self.model = model or self.client.models.list().data[0].id
        self.temperature, self.parallel = temperature, parallel

    def ask(self, asked: list[Question]) -> list[Reply]:
        with concurrent.futures.ThreadPoolExecutor(self.parallel) as pool:
            return list(pool.map(self.ask_one, asked))

    def ask_one(self, question: Question) -> Reply:
        setting, extra = question.setting, {}
        if setting.tools:
            extra["tools"] = [{"type": "function", "function": tool} for tool in setting.tools]
        if setting.response_format:
            extra["response_format"] = {"type": "json_schema", "json_schema": setting.response_format}
        try:
            choice = self.client.chat.completions.create(
                model=self.model, messages=chat_messages(question), temperature=self.temperature,
                reasoning_effort=setting.effort, max_completion_tokens=TOKENS_MAX, **extra).choices[0]
        except Exception as error:  # noqa: BLE001 - a refused request is a result, not a crash
            return Reply(raw=f"{type(error).__name__}: {error}")
        message = choice.message
        calls = message.tool_calls or []
        reply = Reply(content=message.content or "", raw=choice.model_dump_json(),
                      reasoning=getattr(message, "reasoning", None) or getattr(message, "reasoning_content", None) or "",
                      call=(calls[0].function.name, calls[0].function.arguments) if calls else None)
        if calls:
            reply.well_formed = choice.finish_reason == "tool_calls" and len(calls) == 1 and reply.arguments() is not None
        else:
            reply.well_formed = choice.finish_reason == "stop" and bool(reply.content)
        return reply


# ---- report -----------------------------------------------------------------------------

def wilson(right: int, total: int) -> tuple[float, float]:
    if not total:
        return 0.0, 1.0
    z, share = 1.96, right / total
    middle = share + z * z / (2 * total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return max(0.0, (middle - half) / (1 + z * z / total)), min(1.0, (middle + half) / (1 + z * z / total))


SUMMARY = {"arithmetic": "arithmetic, all", "extraction": "extraction to JSON", "tool call": "tool calls, all",
           "tool result": "tool results used", "chat": "chat, all", "well-formed": "well-formed Harmony"}


def table(asked: list[Question]) -> dict[str, tuple[int, int]]:
    rows: dict[str, list[bool]] = {}
    for question in asked:
        for row, right in question.marks:
            rows.setdefault(row, []).append(right)
            for start, name in SUMMARY.items():
                if row.startswith(start) and name != row:
                    rows.setdefault(name, []).append(right)
    rows.pop("extraction", None)
    rows.pop("tool result used", None)
    return {name: (sum(marks), len(marks)) for name, marks in sorted(rows.items())}


def print_table(rows: dict[str, tuple[int, int]]) -> None:
    print("| what | right | asked | share | 95 % interval |\n|---|---|---|---|---|")
    for name, (right, total) in rows.items():
        low, high = wilson(right, total)
        print(f"| {name} | {right} | {total} | {100 * right / total:.1f} % | {100 * low:.1f} to {100 * high:.1f} % |")


def print_failures(asked: list[Question], most: int) -> None:
    failed = [q for q in asked if not all(right for _, right in q.marks)]
    for question in failed[:most]:
        print("---", [row for row, right in question.marks if not right], question.setting.effort)
        print("user:", question.turn.user)
        print("expected:", json.dumps(question.turn.expect, ensure_ascii=False))
        print("got:", question.replies[-1].raw[:700])


def run(asker, asked: list[Question]) -> None:
    going = asked
    while going:
        replies = asker.ask(going)
        going = [q for q, reply in zip(going, replies) if judge(q, reply)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="base URL of an OpenAI-compatible server")
    parser.add_argument("--model", help="model name at the server; the first listed if absent")
    parser.add_argument("--local", type=pathlib.Path, help="folder of an exported checkpoint")
    parser.add_argument("--n", type=int, default=200, help="questions per category")
    parser.add_argument("--seed", type=int, default=4242)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--parallel", type=int, default=8)
    parser.add_argument("--failures", type=int, default=0, help="print this many wrong answers")
    parser.add_argument("--json", type=pathlib.Path, help="write the counts here")
    parser.add_argument("--check", action="store_true", help="exit 1 below the bars of the model card")
    options = parser.parse_args()
    if bool(options.url) == bool(options.local):
        parser.error("give one of --url and --local")
    asker = (LocalAsker(options.local, options.temperature, options.batch) if options.local
             else ServerAsker(options.url, options.model, options.temperature, options.parallel))
    asked = questions(options.n, options.seed)
    run(asker, asked)
    rows = table(asked)
    print_table(rows)
    print_failures(asked, options.failures)
    if options.json:
        options.json.write_text(json.dumps({k: {"right": r, "asked": t} for k, (r, t) in rows.items()}, indent=1) + "\n")
    bars = {"arithmetic, all": 0.95, "extraction to JSON": 0.95, "tool calls, all": 0.98, "well-formed Harmony": 0.995}
    missed = [name for name, bar in bars.items() if wilson(*rows[name])[1] < bar]
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
