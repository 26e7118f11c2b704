"""Extraction to JSON: made-up sentences, requested keys, copied values."""

import json
import random

from . import words
from .render import Setting
from .turn import Memory, Turn, answer

# field -> (names a request may use, JSON type)
FIELDS = {
    "name": (["name", "name", "full_name", "person"], "string"),
    "age": (["age", "age", "age_years"], "integer"),
    "city": (["city", "city", "town", "location"], "string"),
    "email": (["email", "email", "email_address", "mail"], "string"),
    "job": (["job", "occupation", "profession", "job"], "string"),
    "phone": (["phone", "phone_number", "phone"], "string"),
    "customer": (["customer", "buyer", "customer_name", "name"], "string"),
    "item": (["item", "product", "article", "item"], "string"),
    "quantity": (["quantity", "amount", "count", "qty"], "integer"),
    "price": (["price", "cost", "total", "price"], "number"),
    "date": (["date", "date", "day", "when"], "string"),
    "time": (["time", "start_time", "time"], "string"),
    "place": (["place", "venue", "room", "where"], "string"),
    "title": (["title", "event", "topic", "title"], "string"),
    "color": (["color", "colour", "color"], "string"),
    "order_id": (["order_id", "order_number", "id", "order"], "string"),
}
TITLES = ["team meeting", "concert", "workshop", "lunch", "dentist appointment", "book club", "yoga class", "interview",
          "birthday party", "project review", "football match", "chess evening", "parents evening", "demo", "training"]
PLACES = ["room 12", "the library", "the main hall", "the town hall", "the park", "the old cafe", "office 4", "the gym"]


class Raw(str):
    """A number that goes into the JSON exactly as the text has it."""


def price(rng: random.Random) -> str:
    return f"{rng.randint(1, 999)}.{rng.randint(1, 99):02d}" if rng.random() < 0.6 else str(rng.randint(1, 2500))


def money(rng: random.Random, amount: str) -> str:
    return rng.choice([f"${amount}", f"{amount} euros", f"€{amount}", f"{amount} dollars", f"{amount} USD", f"EUR {amount}"])


def person(rng: random.Random) -> tuple[str, dict]:
    v = {"name": words.full_name(rng) if rng.random() < 0.7 else words.first_name(rng), "age": Raw(rng.randint(5, 99)),
         "city": words.city(rng), "email": words.email(rng), "job": rng.choice(words.JOBS),
         "phone": "+" + " ".join(str(rng.randint(10, 999)) for _ in range(3))}
    text = rng.choice([
        "{name} is {age} years old and lives in {city}.",
        "{name}, {age}, is a {job} from {city}.",
        "My name is {name}, I am {age} and I work as a {job} in {city}.",
        "{name} ({age}) lives in {city}. You can reach {name} at {email}.",
        "I met {name} in {city} yesterday, a {age}-year-old {job}.",
        "Contact: {name}, {email}, phone {phone}.",
        "The {job} {name} moved to {city} at the age of {age}.",
        "{name} works as a {job}. The email address is {email} and the phone number is {phone}.",
        "Please write to {name} in {city}: {email}",
        "Hello, this is {name} from {city}. I am {age} years old, my email is {email}.",
        "In {city} there is a {job} called {name}, aged {age}.",
        "{name} turned {age} last week. {name} lives in {city} and works as a {job}.",
        "At {age}, {name} still works as a {job} in {city}; mail goes to {email}.",
        "Name: {name}\nAge: {age}\nCity: {city}\nEmail: {email}",
    ])
    return text, v


def order(rng: random.Random) -> tuple[str, dict]:
    amount = price(rng)
    v = {"customer": words.full_name(rng) if rng.random() < 0.6 else words.first_name(rng), "item": rng.choice(words.ITEMS),
         "quantity": Raw(rng.randint(2, 400)), "price": Raw(amount), "money": money(rng, amount), "date": words.date(rng),
         "color": rng.choice(words.COLORS), "city": words.city(rng),
         "order_id": rng.choice(["A", "B", "R", "X", "ORD"]) + str(rng.randint(100, 99999))}
    if rng.random() < 0.3:
        v["item"] = words.made_up(rng, 2) + "s"
    text = rng.choice([
        "{customer} ordered {quantity} {item} for {money} on {date}.",
        "On {date} {customer} bought {quantity} {color} {item} and paid {money}.",
        "Order {order_id}: {quantity} {item}, total {money}, shipped to {city}.",
        "{customer} from {city} wants {quantity} {color} {item}. The price is {money}.",
        "We sold {quantity} {item} to {customer} for {money}.",
        "Order {order_id} from {customer}: {quantity} {color} {item}, {money}, delivery on {date}.",
        "The {color} {item} cost {money}. {customer} took {quantity} of them.",
        "Please send {quantity} {item} to {customer} in {city} by {date}.",
        "Invoice {order_id}, {date}: {quantity} {item} at {money}.",
        "{customer} paid {money} for {quantity} {item}.",
    ])
    return text, v


def event(rng: random.Random) -> tuple[str, dict]:
    v = {"title": rng.choice(TITLES), "date": words.date(rng), "time": words.clock_time(rng), "place": rng.choice(PLACES),
         "city": words.city(rng), "name": words.first_name(rng)}
    text = rng.choice([
        "The {title} is on {date} at {time} in {place}.",
        "{name} invites you to the {title} on {date} at {time}.",
        "Reminder: {title}, {date}, {time}, {place}.",
        "Our {title} takes place in {city} on {date} and starts at {time}.",
        "The {title} moved to {date}, {time}, at {place} in {city}.",
        "Let us meet for the {title} at {time} on {date}. {name} will be at {place}.",
        "{name} planned a {title} for {date} in {city}.",
    ])
    return text, v


def fields_in(text: str, values: dict) -> list[str]:
    found = [f for f in values if "{" + f + "}" in text and f in FIELDS]
    return found + (["price"] if "{money}" in text else [])


def json_value(value) -> str:
    if value is None:
        return "null"
    return str(value) if isinstance(value, Raw) else json.dumps(value, ensure_ascii=False)


def json_object(pairs: list[tuple[str, object]]) -> str:
    return "{" + ", ".join(f'"{k}": {json_value(v)}' for k, v in pairs) + "}"


ASK_BEFORE = [
    "Extract {keys} as JSON: {text}", "Extract {keys} from this text as JSON.\n\n{text}",
    "Give me a JSON object with the keys {keys} for this text: {text}", "Return JSON with {keys}: {text}",
    "From the following sentence, extract {keys} as JSON.\n{text}", "JSON with {keys}, please: {text}",
    "Turn this into JSON with the keys {keys}:\n{text}", "Find {keys} in this text and answer in JSON: \"{text}\"",
    "Please extract {keys} from: {text}", "Read this and give me {keys} as JSON: {text}",
    "Convert to JSON ({keys}): {text}", "I need {keys} as a JSON object. Text: {text}",
]
ASK_AFTER = [
    "{text}\n\nExtract {keys} as JSON.", "{text} Return {keys} as JSON.", "\"{text}\" - give me {keys} as JSON",
    "Text: {text}\nKeys: {keys}\nAnswer in JSON.", "{text}\nJSON with {keys} please.",
    "Here is a message: {text}\n\nWhich {keys} does it contain? Answer in JSON.",
]
DEVELOPER = [
    "Extract {keys} from the user's text. Answer with JSON only.", "You extract {keys} as a JSON object.",
    "Return a JSON object with the keys {keys}. Use null for what is missing.",
    "You are a data extraction assistant. For every message return JSON with {keys}.",
    "Read the message and answer with JSON that has these keys: {keys}.", "Output only JSON with {keys}.",
]
NEUTRAL = ["You are a helpful assistant.", "Extract the information from the text.", "Answer in JSON.",
           "Extract the data as JSON.", "You extract structured data.", None, None]
FORMAT_NAMES = ["response", "person", "order", "event", "extraction", "output", "result", "record", "data", "schema", "answer"]


def key_list(rng: random.Random, keys: list[str]) -> str:
    style = rng.random()
    if style < 0.25:
        return ", ".join(keys)
    if style < 0.4:
        return words.join_list([f'"{k}"' for k in keys])
    if style < 0.5:
        return words.join_list([f"`{k}`" for k in keys])
    if style < 0.6:
        return "the " + words.join_list(keys)
    return words.join_list(keys)


def schema_of(rng: random.Random, pairs: list[tuple[str, str]]) -> dict:
    properties = {}
    for key, kind in pairs:
        properties[key] = {"type": FIELDS[kind][1]}
        if FIELDS[kind][1] == "integer" and rng.random() < 0.2:
            properties[key]["type"] = "number"
        if rng.random() < 0.15:
            properties[key]["description"] = f"The {key.replace('_', ' ')}"
        if rng.random() < 0.2:
            properties[key] = {"title": key.replace("_", " ").title(), **properties[key]}
    schema = {"type": "object", "properties": properties, "required": [k for k, _ in pairs]}
    if rng.random() < 0.6:
        schema["additionalProperties"] = False
    return schema


def thoughts(effort: str, pairs: list[tuple[str, object]]) -> str | None:
    if effort == "low":
        return None
    keys = ", ".join(k for k, _ in pairs)
    if effort == "medium":
        return f"JSON with the keys {keys}."
    lines = [f"{k}: {'not in the text' if v is None else v}" for k, v in pairs]
    return f"JSON with the keys {keys}.\n" + "\n".join(lines) + "\nAll keys are covered."


def choose(rng: random.Random) -> tuple[str, list[tuple[str, str]], list[tuple[str, object]]]:
    """(sentence, [(key, field)], [(key, value)])"""
    template, values = rng.choices([person, order, event], [4, 3, 2])[0](rng)
    fields = fields_in(template, values)
    text = template.format(**values)
    chosen = rng.sample(fields, rng.randint(min(2, len(fields)), min(4, len(fields)))) if rng.random() < 0.6 else list(fields)
    if rng.random() < 0.12:
        absent = [f for f in values if f in FIELDS and f not in fields]
        if absent:
            chosen.insert(rng.randint(0, len(chosen)), rng.choice(absent))
    keys, kinds = [], []
    for field in chosen:
        key = rng.choice(FIELDS[field][0])
        if key not in keys:
            keys.append(key)
            kinds.append(field)
    present = {f: (values[f] if f in fields else None) for f in kinds}
    return text, list(zip(keys, kinds)), [(k, present[f]) for k, f in zip(keys, kinds)]


def expect(pairs: list[tuple[str, object]]) -> dict:
    return {"json": json.loads(json_object(pairs))}


def record(rng: random.Random, setting: Setting, memory: Memory, alone: bool = True) -> Turn:
    """alone: the setting is still free, so the request may live in it."""
    text, kinds, pairs = choose(rng)
    keys = [k for k, _ in pairs]
    free = alone and not setting.instructions
    where = rng.choices(["user", "developer", "format"], [5, 2.5 * free, 2.5 * free])[0]
    if where == "user":
        question = rng.choice(ASK_BEFORE + ASK_AFTER).format(keys=key_list(rng, keys), text=text)
        if rng.random() < 0.1:
            question = question[0].lower() + question[1:]
    elif where == "developer":
        setting.instructions = rng.choice(DEVELOPER).format(keys=key_list(rng, keys))
        question = text
    else:
        setting.instructions = rng.choice(NEUTRAL)
        # a server that enforces the schema could not write null for a string
        kinds = [kind for kind, (_, v) in zip(kinds, pairs) if v is not None]
        pairs = [(k, v) for k, v in pairs if v is not None]
        setting.response_format = {"name": rng.choice(FORMAT_NAMES), "schema": schema_of(rng, kinds)}
        if rng.random() < 0.2:
            setting.response_format["description"] = rng.choice(["The extracted data", "What the text says", "One record"])
        question = text if rng.random() < 0.5 else rng.choice(["Extract: ", "Text: ", "Extract the data: ", "Parse this: ",
                                                               "Extract the information: "]) + text
    body = json_object(pairs)
    replies = answer(setting, {setting.effort: thoughts(setting.effort, pairs)}, body)
    return Turn(question, replies, "extraction", text + "|" + ",".join(keys), expect(pairs))


def shopping(rng: random.Random, setting: Setting, memory: Memory, alone: bool = True) -> Turn:
    count = rng.randint(2, 4)
    items = rng.sample(words.ITEMS, count)
    numbers = [rng.randint(1, 60) for _ in range(count)]
    text = rng.choice(["We need {l}.", "Please buy {l}.", "{n} wants {l}.", "Shopping list: {l}", "Put {l} in the cart."])
    text = text.format(l=words.join_list([f"{k} {i}" for k, i in zip(numbers, items)]), n=words.first_name(rng))
    name, count_key = rng.choice([("item", "quantity"), ("name", "count"), ("item", "count"), ("product", "quantity")])
    ask = rng.choice(["Make a JSON list of objects with {a} and {b}: {t}", "List {a} and {b} of everything as JSON: {t}",
                      "{t}\n\nGive me a JSON array with {a} and {b} for each.", "Extract a JSON array of {a} and {b}: {t}"])
    body = "[" + ", ".join(json_object([(name, i), (count_key, Raw(k))]) for i, k in zip(items, numbers)) + "]"
    thought = {"medium": f"{count} objects with {name} and {count_key}.",
               "high": f"{count} objects with {name} and {count_key}: " + ", ".join(
                   f"{i} {k}" for i, k in zip(items, numbers)) + "."}
    return Turn(ask.format(a=name, b=count_key, t=text), answer(setting, thought, body), "extraction", text,
                {"json": json.loads(body)})


def names(rng: random.Random, setting: Setting, memory: Memory, alone: bool = True) -> Turn:
    count = rng.randint(2, 4)
    people = [words.first_name(rng) if rng.random() < 0.6 else words.full_name(rng) for _ in range(count)]
    text = rng.choice(["{l} came to the party.", "The team is {l}.", "I met {l} yesterday.", "Invited: {l}",
                       "{l} are in room 12.", "Yesterday {l} went to the park."]).format(l=words.join_list(people))
    key = rng.choice(["names", "people", "persons"])
    ask = rng.choice(["Extract all names as JSON with the key {k}: {t}", "Which people are named here? JSON, key {k}: {t}",
                      "{t}\n\nReturn JSON with a list called {k}.", "List the {k} as JSON: {t}"])
    body = f'{{"{key}": {json.dumps(people, ensure_ascii=False)}}}'
    thought = {"medium": f"{count} names.", "high": f"{count} names: {', '.join(people)}."}
    return Turn(ask.format(k=key, t=text), answer(setting, thought, body), "extraction", text, {"json": json.loads(body)})


def turn(rng: random.Random, setting: Setting, memory: Memory, alone: bool = True) -> Turn:
    make = rng.choices([record, shopping, names], [10, 1.3, 1])[0]
    return make(rng, setting, memory, alone)
