"""Arithmetic, worked column by column in the analysis channel.

`>` shows the result so far: every column only puts digits in front of it, so no step
needs more than one table fact and one copy. Low effort writes the columns in one line,
medium names the places, high also checks the result with the inverse operation.
"""

import operator
import random

from .render import Setting
from .turn import Memory, Turn, answer, pick
from .words import ITEMS, casual, first_name

PLACES = ["ones", "tens", "hundreds", "thousands", "ten-thousands", "hundred-thousands", "millions"]
OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv}


def digits(a: int, b: int) -> tuple[str, str]:
    width = max(len(str(a)), len(str(b)))
    return str(a).zfill(width), str(b).zfill(width)


def add_columns(a: int, b: int) -> tuple[str, list[str]]:
    x, y = digits(a, b)
    carry, done, columns = 0, "", []
    for i in range(len(x) - 1, -1, -1):
        total = int(x[i]) + int(y[i]) + carry
        done = (str(total) if i == 0 else str(total % 10)) + done
        columns.append(f"{x[i]}+{y[i]}+{carry}={total} >{done}")
        carry = total // 10
    return f"{x}+{y}", columns


def subtract_columns(a: int, b: int) -> tuple[str, list[str]]:
    x, y = digits(a, b)
    borrow, done, columns = 0, "", []
    for i in range(len(x) - 1, -1, -1):
        value = int(x[i]) - int(y[i]) - borrow
        lent = "+10" if value < 0 else ""
        digit = value % 10
        done = str(digit) + done
        columns.append(f"{x[i]}-{y[i]}-{borrow}{lent}={digit} >{done}")
        borrow = int(value < 0)
    return f"{x}-{y}", columns


def multiply_columns(a: int, digit: int) -> tuple[str, list[str]]:
    carry, done, columns = 0, "", []
    text = str(a)
    for i in range(len(text) - 1, -1, -1):
        total = int(text[i]) * digit + carry
        done = (str(total) if i == 0 else str(total % 10)) + done
        columns.append(f"{text[i]}*{digit}+{carry}={total} >{done}")
        carry = total // 10
    return f"{a}*{digit}", columns


def divide_columns(a: int, b: int) -> tuple[str, list[str]]:
    rest, done, columns = 0, "", []
    for digit in str(a):
        part = rest * 10 + int(digit)
        done += str(part // b)
        columns.append(f"{part}/{b}={part // b} r{part % b} >{done}")
        rest = part % b
    return f"{a}/{b}", columns


def lay_out(head: str, columns: list[str], effort: str, places: bool = True) -> str:
    if effort == "low":
        return f"{head}: " + ", ".join(columns)
    names = PLACES if places else [f"step {i + 1}" for i in range(len(columns))]
    return f"{head}:\n" + "\n".join(f"{names[i]} {c}" for i, c in enumerate(columns))


def work_multiply(a: int, b: int, effort: str) -> str:
    if len(str(a)) < len(str(b)):
        a, b = b, a
    if b == 0 or a == 0:
        return f"{a}*{b}: 0"
    parts, lines = [], []
    for place, digit in enumerate(reversed(str(b))):
        if digit == "0":
            continue
        lines.append(lay_out(*multiply_columns(a, int(digit)), effort))
        part = a * int(digit) * 10**place
        if place:
            lines.append(f"{a}*{digit}{'0' * place} = {part}")
        parts.append(part)
    total = parts[0]
    for part in parts[1:]:
        lines.append(lay_out(*add_columns(total, part), effort))
        total += part
    return "\n".join(lines)


def work(a: int, op: str, b: int, effort: str) -> str:
    if op == "+":
        return lay_out(*add_columns(a, b), effort)
    if op == "-":
        if a < b:
            return f"{a} < {b}, negative.\n" + lay_out(*subtract_columns(b, a), effort)
        return lay_out(*subtract_columns(a, b), effort)
    if op == "*":
        return work_multiply(a, b, effort)
    return lay_out(*divide_columns(a, b), effort, places=False)


def value(a: int, op: str, b: int) -> int:
    return OPERATIONS[op](a, b)


def shown(a: int, op: str, b: int) -> str:
    rest = a % b if op == "/" else 0
    return f"{value(a, op, b)}" + (f" remainder {rest}" if rest else "")


def check_line(a: int, op: str, b: int) -> str:
    """High effort undoes the operation; a product is checked by size only."""
    r = value(a, op, b)
    if op == "+":
        return "Check: " + lay_out(*subtract_columns(r, b), "low") + f". That is {a}, correct."
    if op == "-":
        big, small = max(a, b), min(a, b)
        return "Check: " + lay_out(*add_columns(big - small, small), "low") + f". That is {big}, correct."
    if op == "/":
        return "Check: " + work_multiply(r, b, "low").replace("\n", "; ") + f". Plus {a % b} gives {a}, correct."
    last = int(str(a)[-1]) * int(str(b)[-1])
    return f"Check: last digits {str(a)[-1]}*{str(b)[-1]}={last}, and {r} ends in {r % 10}, correct."


def single_thoughts(a: int, op: str, b: int, effort: str) -> str:
    conclusion = f"{a} {op} {b} = {shown(a, op, b)}"
    if effort == "low":
        return f"{work(a, op, b, effort)}\n{conclusion}"
    intro = {"+": "Add column by column.", "-": "Subtract column by column.", "*": "Multiply digit by digit.",
             "/": "Divide from the left."}[op]
    text = f"{intro}\n{work(a, op, b, effort)}\nSo {conclusion}."
    return text + "\n" + check_line(a, op, b) if effort == "high" else text


def number(rng: random.Random, most: int) -> int:
    """Uniform in the number of digits first, so that short numbers are common."""
    count = rng.randint(1, most)
    if count > 1 and rng.random() < 0.06:  # runs of one digit are easy to miscount
        return int(str(rng.randint(1, 9)) * count)
    return rng.randint(0 if count == 1 else 10 ** (count - 1), 10**count - 1)


def operands(rng: random.Random, op: str) -> tuple[int, int]:
    if op in "+-":
        most = 6 if rng.random() < 0.2 else 4
        a, b = number(rng, most), number(rng, most)
        if op == "-" and a < b and rng.random() < 0.7:
            a, b = b, a
        return a, b
    if op == "*":
        shape = rng.choices([(1, 1), (2, 1), (3, 1), (2, 2), (3, 2), (4, 1)], [2, 4, 4, 8, 1, 1])[0]
        a, b = (rng.randint(10 ** (n - 1) if n > 1 else 0, 10**n - 1) for n in shape)
        return (a, b) if rng.random() < 0.6 else (b, a)
    b = rng.randint(2, 12)
    exact = rng.random() < 0.75
    a = b * rng.randint(1, 10 ** rng.randint(1, 3) - 1) if exact else number(rng, 4)
    return min(a, 9999) if not exact or a <= 9999 else b * rng.randint(1, 99), b


SPOKEN = {"+": ["plus", "+", "+", "+", "added to", "and add"], "-": ["minus", "-", "-", "-", "less"],
          "*": ["times", "*", "*", "x", "×", "multiplied by"], "/": ["divided by", "/", "/", "÷", "over"]}
ASKING = ["What is {e}?", "what's {e}?", "{e}", "{e} =", "{e}?", "Calculate {e}.", "How much is {e}?", "Compute {e}.",
          "Please work out {e}.", "Can you tell me what {e} is?", "I need to know {e}.", "Solve {e}", "whats {e}",
          "Could you calculate {e} for me?", "{e} equals?", "Give me the result of {e}.", "Tell me {e}.",
          "Do you know {e}?", "What does {e} equal?", "what do you get for {e}?", "Evaluate {e}", "{e} = ?",
          "What's the answer to {e}?", "My homework says {e}. What is it?", "result of {e}"]
SPECIAL_ASKING = {
    "+": ["Add {a} and {b}.", "What is the sum of {a} and {b}?", "Sum {a} and {b}", "Add {b} to {a}.",
          "If I have {a} and get {b} more, how many do I have?", "{a} and {b} together?"],
    "-": ["Subtract {b} from {a}.", "Take {b} away from {a}.", "What is {a} take away {b}?",
          "What is the difference: {a} minus {b}?", "How much is left if I take {b} from {a}?"],
    "*": ["Multiply {a} by {b}.", "What is the product of {a} and {b}?", "Multiply {a} and {b}",
          "How many are {a} groups of {b}?"],
    "/": ["Divide {a} by {b}.", "How many times does {b} go into {a}?", "Split {a} into {b} equal parts.",
          "What is the quotient of {a} and {b}?"],
}


def written(rng: random.Random, n: int) -> str:
    return f"{n:,}" if n >= 1000 and rng.random() < 0.1 else str(n)


def expression_text(rng: random.Random, a: int, op: str, b: int) -> str:
    sign = rng.choice(SPOKEN[op])
    gap = "" if sign in "+-*x×/÷" and rng.random() < 0.35 else " "
    return f"{written(rng, a)}{gap}{sign}{gap}{written(rng, b)}"


def ask(rng: random.Random, a: int, op: str, b: int) -> str:
    if rng.random() < 0.25:
        text = rng.choice(SPECIAL_ASKING[op]).format(a=written(rng, a), b=written(rng, b))
    else:
        text = rng.choice(ASKING).format(e=expression_text(rng, a, op, b))
    return casual(rng, text)


def only_result(setting: Setting) -> bool:
    return bool(setting.instructions) and ("one word" in setting.instructions or "only the" in setting.instructions)


def spoken_result(rng: random.Random, setting: Setting, text: str, shown_value: str) -> str:
    """The final message, in the manner the developer asked for."""
    if setting.instructions and "Always answer in JSON" in setting.instructions:
        return f'{{"answer": {shown_value}}}' if shown_value.lstrip("-").isdigit() else f'{{"answer": "{shown_value}"}}'
    if only_result(setting):
        return shown_value
    return pick(rng, {f"{text} = {shown_value}": 10, f"The answer is {shown_value}.": 1, f"{text} = {shown_value}.": 2})


def single(rng: random.Random, setting: Setting, memory: Memory) -> Turn:
    op = rng.choices("+-*/", [3, 3, 4, 2.5])[0]
    a, b = operands(rng, op)
    memory.number = value(a, op, b)
    thoughts = single_thoughts(a, op, b, setting.effort)
    replies = answer(setting, {setting.effort: thoughts}, spoken_result(rng, setting, f"{a} {op} {b}", shown(a, op, b)))
    return Turn(ask(rng, a, op, b), replies, "arithmetic", f"{a}{op}{b}", {"number": shown(a, op, b), "op": op})


def steps_thoughts(steps: list[tuple[int, str, int]], effort: str) -> str:
    lines = []
    for i, (a, op, b) in enumerate(steps):
        if effort != "low":
            lines.append(f"Step {i + 1}: {a} {op} {b}")
        lines.append(work(a, op, b, effort))
        lines.append(f"{a} {op} {b} = {value(a, op, b)}")
    if effort == "high":
        lines.append("Check: " + ", ".join(f"{a} {op} {b} = {value(a, op, b)}" for a, op, b in steps) + ". All steps used.")
    return "\n".join(lines)


def chain(rng: random.Random, setting: Setting, memory: Memory) -> Turn:
    """Three numbers, with precedence."""
    a, b, c = number(rng, 3), number(rng, 2), number(rng, 2)
    first, second = rng.choice(["++", "+-", "-+", "*+", "*-", "+*", "-*", "--"])
    if second == "*":
        b, c = number(rng, 2), rng.randint(2, 9)
        steps = [(b, "*", c), (a, first, b * c)]
    else:
        if first == "*":
            a, b = number(rng, 2), rng.randint(2, 9)
        middle = value(a, first, b)
        if middle < 0:
            a, b = b, a
            middle = value(a, first, b)
        steps = [(a, first, b), (middle, second, c)]
    total = value(*steps[-1])
    memory.number = total
    gap = rng.choice(["", " ", " "])
    text = f"{a}{gap}{first}{gap}{b}{gap}{second}{gap}{c}"
    question = casual(rng, rng.choice(ASKING).format(e=text))
    spoken = spoken_result(rng, setting, f"{a} {first} {b} {second} {c}", str(total))
    replies = answer(setting, {setting.effort: steps_thoughts(steps, setting.effort)}, spoken)
    return Turn(question, replies, "arithmetic", f"{a}{first}{b}{second}{c}", {"number": str(total), "op": "chain"})


STORIES = [  # (text, first step, second step) with x for the first step's result
    ("{n} has {a} {i} and buys {b} more. Then {n} gives away {c}. How many {i} does {n} have left?", "a+b", "x-c"),
    ("{n} has {a} {i}. {m} brings {b} more, and they lose {c}. How many {i} are there now?", "a+b", "x-c"),
    ("A box holds {s} {i}. {n} buys {t} boxes and already has {c} {i}. How many {i} are that in total?", "s*t", "x+c"),
    ("{n} buys {t} bags with {s} {i} each and loses {c} of them. How many {i} are left?", "s*t", "x-c"),
    ("One ticket costs {s} euros. How much do {t} tickets cost with a fee of {c} euros?", "s*t", "x+c"),
    ("{n} earns {s} euros an hour and works {t} hours, then spends {c} euros. How many euros remain?", "s*t", "x-c"),
    ("There are {a} {i} on one shelf and {b} on another. {n} adds {c}. How many {i} are there?", "a+b", "x+c"),
    ("A train carries {a} people. {b} get off and {c} get on. How many people are on the train?", "a-b", "x+c"),
    ("{n} reads {s} pages a day for {t} days. The book has {c} more pages. How many pages has the book?", "s*t", "x+c"),
    ("{n} shares {q} {i} equally among {t} friends. Each friend already had {c}. How many has each now?", "q/t", "x+c"),
    ("A farmer packs {q} {i} into {t} equal crates and takes {d} out of one crate. How many {i} stay in that crate?",
     "q/t", "x-d"),
    ("{n} is {a} cm tall and {m} is {b} cm taller. {m} stands on a box of {c} cm. How high is that in cm?", "a+b", "x+c"),
]


SHORT_STORIES = [
    ("I bought {t} {i} for {s} dollars each. How much did I pay?", "s*t"),
    ("{n} buys {t} {i} at {s} euros each. How much does {n} pay?", "s*t"),
    ("One of the {i} costs {s} dollars. How much do {t} cost?", "s*t"),
    ("There are {s} {i} in every box. How many {i} are in {t} boxes?", "s*t"),
    ("I have {a} {i} and you have {b}. How many {i} do we have together?", "a+b"),
    ("{n} has {a} {i} and finds {b} more. How many {i} does {n} have?", "a+b"),
    ("{n} had {a} {i} and lost {b}. How many {i} are left?", "a-b"),
    ("I had {a} {i} and ate {b}. How many do I still have?", "a-b"),
    ("{n} is {a} and {m} is {b} years older. How old is {m}?", "a+b"),
    ("{q} {i} are shared by {t} friends. How many does each get?", "q/t"),
    ("A car drives {s} km an hour. How far does it get in {t} hours?", "s*t"),
    ("A book has {a} pages and I have read {b}. How many pages are left?", "a-b"),
]


def short_story(rng: random.Random, setting: Setting, memory: Memory) -> Turn:
    """One step, told in words."""
    text, (x, op, y) = rng.choice(SHORT_STORIES)
    t = rng.randint(2, 9)
    low = rng.randint(1, 49)
    values = {"a": low + rng.randint(1, 300), "b": low, "s": rng.randint(2, 99), "t": t, "q": t * rng.randint(2, 60)}
    a, b = values[x], values[y]
    memory.number = value(a, op, b)
    question = text.format(n=first_name(rng), m=first_name(rng), i=rng.choice(ITEMS), **values)
    replies = answer(setting, {setting.effort: single_thoughts(a, op, b, setting.effort)},
                     spoken_result(rng, setting, f"{a} {op} {b}", shown(a, op, b)))
    return Turn(casual(rng, question, typos=False, lower=False), replies, "arithmetic", f"{a}{op}{b} told",
                {"number": shown(a, op, b), "op": "story"})


def story(rng: random.Random, setting: Setting, memory: Memory) -> Turn:
    text, first, second = rng.choice(STORIES)
    s, t = rng.randint(2, 99), rng.randint(2, 9)
    each = rng.randint(3, 60)
    values = {"a": rng.randint(50, 400), "b": rng.randint(2, 49), "s": s, "t": t, "q": each * t, "c": rng.randint(2, 40),
              "d": rng.randint(1, each - 1)}
    if second == "x-c":
        values["c"] = rng.randint(1, max(1, min(40, s * t - 1)))
    x = value(values[first[0]], first[1], values[first[2]])
    steps = [(values[first[0]], first[1], values[first[2]]), (x, second[1], values[second[2]])]
    total = value(*steps[1])
    memory.number = total
    item = rng.choice(ITEMS)
    question = text.format(n=first_name(rng), m=first_name(rng), i=item, **values)
    spoken = spoken_result(rng, setting, f"{steps[0][0]} {first[1]} {steps[0][2]} {second[1]} {steps[1][2]}", str(total))
    replies = answer(setting, {setting.effort: steps_thoughts(steps, setting.effort)}, spoken)
    return Turn(casual(rng, question, typos=False, lower=False), replies, "arithmetic",
                f"{first}{second}{sorted(values.items())}", {"number": str(total), "op": "story"})


FOLLOW_UPS = {"+": ["and plus {b}?", "Now add {b}.", "add {b} to that", "plus {b}?", "And if you add {b}?"],
              "-": ["and minus {b}?", "Now subtract {b}.", "take away {b}", "minus {b}?", "And {b} less?"],
              "*": ["and times {b}?", "Now multiply it by {b}.", "times {b}", "And multiplied by {b}?", "that times {b}?"]}


def follow_up(rng: random.Random, setting: Setting, memory: Memory) -> Turn | None:
    a = memory.number
    if a is None or not 0 <= a <= 9999:
        return None
    op = rng.choice("+-*")
    b = rng.randint(2, 9) if op == "*" else number(rng, 3)
    question = rng.choice(FOLLOW_UPS[op]).format(b=b)
    if op == "*" and rng.random() < 0.2:
        b, question = 2, rng.choice(["Double it.", "and double that?", "now double it"])
    memory.number = value(a, op, b)
    replies = answer(setting, {setting.effort: single_thoughts(a, op, b, setting.effort)},
                     spoken_result(rng, setting, f"{a} {op} {b}", str(value(a, op, b))))
    return Turn(casual(rng, question), replies, "arithmetic", f"{a}{op}{b}", {"number": str(memory.number), "op": "follow-up"})


def too_large(rng: random.Random, setting: Setting, memory: Memory) -> Turn:
    a, b = (rng.randint(10 ** (n - 1), 10**n - 1) for n in (rng.randint(4, 9), rng.randint(4, 9)))
    op = rng.choice("*/")
    text = "That is too large for me to work out reliably. Give me a calculator tool and I will use it."
    thoughts = {"medium": "These numbers are too long for me.", "high": "These numbers are too long for me. I should say so."}
    return Turn(ask(rng, a, op, b), answer(setting, thoughts, text), "chat", f"{a}{op}{b}", {"words": ["too large"]})


def turn(rng: random.Random, setting: Setting, memory: Memory) -> Turn:
    if memory.number is not None and rng.random() < 0.5:
        follow = follow_up(rng, setting, memory)
        if follow:
            return follow
    make = rng.choices([single, chain, story, short_story, too_large], [10, 2, 3, 2, 0.3])[0]
    return make(rng, setting, memory)
