"""Tool calls whose results are used: calculator, weather, clock, and a few others.

Names, parameters and descriptions vary, so that the model reads the definitions it is
given and does not recite one of them.
"""

import json
import pathlib
import random

from . import words
from .arithmetic import expression_text
from .render import Message, Setting
from .turn import Memory, Turn, analysis, call, final, result

CANONICAL = [entry["function"] for entry in json.loads((pathlib.Path(__file__).parent / "tools.json").read_text())]
ROLES = {"calculator": "calculator", "get_weather": "weather", "get_time": "clock"}


def described(rng: random.Random, schema: dict, text: str, share: float = 0.7) -> dict:
    return {**schema, "description": text} if rng.random() < share else schema


def parameters(properties: dict, required: list[str], rng: random.Random) -> dict:
    schema = {"type": "object", "properties": properties, "required": required}
    if rng.random() < 0.2:
        schema["additionalProperties"] = False
    return schema


def calculator_tool(rng: random.Random) -> dict:
    key = rng.choices(["expression", "expr", "input", "formula"], [7, 1, 1, 1])[0]
    name = rng.choices(["calculator", "calculate", "calc", "evaluate", "math"], [6, 2, 1, 1, 1])[0]
    text = rng.choice(["Evaluates an arithmetic expression.", "Calculate a mathematical expression", "A calculator.",
                       "Evaluate a math expression and return the result.", "Does arithmetic exactly.", "Calculator", ""])
    value = described(rng, {"type": "string"}, rng.choice(["The expression to evaluate", "An expression such as 2 + 2",
                                                          "The math expression", "e.g. 12 * (3 + 4)"]))
    return {"name": name, "description": text, "parameters": parameters({key: value}, [key], rng)}


def weather_tool(rng: random.Random) -> dict:
    key = rng.choices(["city", "location", "place"], [6, 4, 1])[0]
    name = rng.choices(["get_weather", "get_current_weather", "weather", "fetch_weather", "weather_lookup"], [6, 3, 1, 1, 1])[0]
    text = rng.choice(["Current weather in a city.", "Get the current weather in a given location", "Weather report",
                       "Gets the weather for a city.", "Look up the weather.", "Get current temperature for a given location."])
    properties = {key: described(rng, {"type": "string"}, rng.choice([
        "Name of the city", "The city", "City name, for example Paris", "The city to look up", "Where"]))}
    required = [key]
    if rng.random() < 0.6:
        unit = rng.choice(["unit", "unit", "units"])
        properties[unit] = {"type": "string", "enum": ["celsius", "fahrenheit"]}
        if rng.random() < 0.2:
            properties[unit]["default"] = "celsius"
        properties[unit] = described(rng, properties[unit], "Temperature unit", 0.3)
        if rng.random() < 0.15:
            required.append(unit)
    return {"name": name, "description": text, "parameters": parameters(properties, required, rng)}


def clock_tool(rng: random.Random) -> dict:
    name = rng.choices(["get_time", "clock", "get_current_time", "current_time", "time_in"], [6, 3, 2, 1, 1])[0]
    key = rng.choices(["timezone", "city", "location"], [5, 4, 1])[0]
    if key == "timezone":
        value = described(rng, {"type": "string"}, rng.choice([
            "IANA time zone, for example Europe/Paris", "The time zone", "IANA timezone name", "e.g. Asia/Tokyo"]))
        text = rng.choice(["Current time in a time zone.", "Get the current time for a timezone", "A clock.", "Tells the time."])
    else:
        value = described(rng, {"type": "string"}, rng.choice(["Name of the city", "The city", "City to look up"]))
        text = rng.choice(["Current time in a city.", "Get the local time", "A clock.", "Tells the time in a city."])
    return {"name": name, "description": text, "parameters": parameters({key: value}, [key], rng)}


# Other tools: (name, description, [(parameter, type)], [requests], result text, final text)
OTHERS = [
    ("set_timer", "Starts a timer.", [("minutes", "integer")],
     ["Set a timer for {minutes} minutes.", "Timer {minutes} minutes please", "Wake me in {minutes} minutes."],
     '{{"status": "ok"}}', "The timer is set for {minutes} minutes."),
    ("search", "Searches the web.", [("query", "string")],
     ["Search the web for {query}.", "Look up {query}", "Find pages about {query}."],
     '{{"results": ["{query} explained"]}}', "I found one page: {query} explained."),
    ("convert_currency", "Converts money.", [("amount", "number"), ("from_currency", "string"), ("to_currency", "string")],
     ["Convert {amount} {from_currency} to {to_currency}.", "How much is {amount} {from_currency} in {to_currency}?"],
     '{{"result": {money}}}', "{amount} {from_currency} are {money} {to_currency}."),
    ("get_stock_price", "Price of a stock.", [("symbol", "string")],
     ["What is the stock price of {symbol}?", "Price of {symbol} stock?", "How is {symbol} trading?"],
     '{{"symbol": "{symbol}", "price": {money}}}', "{symbol} is at {money}."),
    ("lookup_order", "Status of an order.", [("order_id", "string")],
     ["Where is order {order_id}?", "Status of my order {order_id}?", "Look up order {order_id}."],
     '{{"order_id": "{order_id}", "status": "{status}"}}', "Order {order_id} is {status}."),
    ("send_message", "Sends a short message.", [("to", "string"), ("text", "string")],
     ["Send {to} the message: {text}", "Tell {to}: {text}", "Write to {to}: {text}"],
     '{{"status": "sent"}}', "I sent your message to {to}."),
    ("turn_on_light", "Turns on the light in a room.", [("room", "string")],
     ["Turn on the light in the {room}.", "Light on in the {room} please", "Make it bright in the {room}."],
     "ok", "The light in the {room} is on."),
    ("translate", "Translates text.", [("text", "string"), ("language", "string")],
     ["Translate \"{text}\" to {language}.", "How do you say \"{text}\" in {language}?"],
     '{{"translation": "{other}"}}', "In {language} that is: {other}"),
]
OTHER_NAMES = {"set_timer": ["set_timer", "start_timer", "timer"], "search": ["search", "web_search", "search_web"],
               "get_stock_price": ["get_stock_price", "stock_price"], "lookup_order": ["lookup_order", "get_order_status"]}
CONDITIONS = ["sunny", "cloudy", "rainy", "windy", "foggy", "snowy", "clear", "light rain", "partly cloudy", "overcast"]


def other_tool(rng: random.Random, entry: tuple) -> dict:
    properties = {key: described(rng, {"type": kind}, f"The {key.replace('_', ' ')}", 0.4) for key, kind in entry[2]}
    name = rng.choice(OTHER_NAMES.get(entry[0], [entry[0]]))
    return {"name": name, "description": entry[1], "parameters": parameters(properties, list(properties), rng)}


def choose_tools(rng: random.Random) -> list[tuple[str, dict]]:
    """[(role, definition)], one to four tools in any order."""
    if rng.random() < 0.3:
        chosen = [(ROLES[t["name"]], t) for t in CANONICAL]
        if rng.random() < 0.5:
            chosen = rng.sample(chosen, rng.randint(1, 3))
    else:
        makers = {"calculator": calculator_tool, "weather": weather_tool, "clock": clock_tool}
        roles = rng.sample(list(makers), rng.choices([0, 1, 2, 3], [1, 4, 3, 3])[0])
        chosen = [(role, makers[role](rng)) for role in roles]
    if rng.random() < 0.3 or not chosen:
        for entry in rng.sample(OTHERS, rng.choice([1, 1, 2])):
            chosen.append((entry[0], other_tool(rng, entry)))
    rng.shuffle(chosen)
    return chosen


def pause(setting: Setting, rng: random.Random, short: str, long: str) -> list[Message]:
    """Reasoning before a call; sometimes none, because tool_choice can force the call."""
    if setting.effort == "low" or rng.random() < 0.03:
        return []
    return [analysis(short if setting.effort == "medium" else long)]


# ---- calculator -------------------------------------------------------------------------

ASK_CALCULATOR = ["What is {e}?", "Calculate {e}", "{e}", "How much is {e}?", "Compute {e}.", "{e} = ?", "please compute {e}",
                  "Use the calculator for {e}.", "What's {e}?", "I need the exact value of {e}.", "Can you work out {e}?",
                  "Tell me {e}", "whats {e}?", "Evaluate {e}", "Could you calculate {e} for me?"]


def plain(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else str(round(number, 4))


def calculation(rng: random.Random) -> tuple[str, str, float]:
    """(as the user says it, expression, value)"""
    kind = rng.choices(["two", "three", "brackets", "percent", "power", "root", "decimal"], [10, 3, 3, 2, 1, 1, 2])[0]
    n = lambda most: rng.randint(1, 10 ** rng.randint(1, most) - 1)  # noqa: E731
    if kind == "two":
        a, b, op = n(6), n(4), rng.choice("+-*/")
        return expression_text(rng, a, op, b), f"{a} {op} {b}", {"+": a + b, "-": a - b, "*": a * b, "/": a / b}[op]
    if kind == "three":
        a, b, c, p, q = n(4), n(3), n(3), rng.choice("+-*"), rng.choice("+-*")
        text = f"{a} {p} {b} {q} {c}"
    elif kind == "brackets":
        a, b, c, p, q = n(3), n(3), n(2), rng.choice("+-"), rng.choice("*/")
        text = f"({a} {p} {b}) {q} {c}" if q == "/" or rng.random() < 0.6 else f"{c} * ({a} {p} {b})"
    elif kind == "percent":
        p, a = rng.randint(1, 99), n(4)
        return rng.choice([f"{p}% of {a}", f"{p} percent of {a}"]), f"{a} * {p} / 100", a * p / 100
    elif kind == "power":
        a, b = rng.randint(2, 20), rng.randint(2, 8)
        return rng.choice([f"{a}^{b}", f"{a} to the power of {b}", f"{a} ** {b}"]), f"{a} ** {b}", a**b
    elif kind == "root":
        a = rng.randint(2, 99)
        return rng.choice([f"the square root of {a * a}", f"sqrt({a * a})"]), f"sqrt({a * a})", a
    else:
        a, b = rng.randint(1, 9999) / 100, rng.randint(1, 999) / 10
        op = rng.choice("+-*")
        text = f"{a} {op} {b}"
    spoken = text.replace(" ", "") if rng.random() < 0.3 else text
    return spoken.replace("*", rng.choice(["*", "*", "x", "×"])), text, eval(text)  # noqa: S307 - our own numbers


def calculator_result(rng: random.Random, value: str) -> str:
    return rng.choice([value, f'{{"result": {value}}}', f'{{"value": {value}}}', f'{{"result": "{value}"}}', f'{{"answer":{value}}}'])


def use_calculator(rng: random.Random, setting: Setting, tool: dict, memory: Memory) -> Turn:
    name, key = tool["name"], next(iter(tool["parameters"]["properties"]))
    follow = memory.number is not None and rng.random() < 0.5
    if follow:
        a, b, op = memory.number, rng.randint(2, 99), rng.choice("+-*/")
        verb = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}[op]
        question = rng.choice([f"and {verb} {b}?", f"Now that {verb} {b}.", f"And {verb} {b}?", f"{verb} {b}?"])
        expression, value = f"{a} {op} {b}", {"+": a + b, "-": a - b, "*": a * b, "/": a / b}[op]
    else:
        spoken, expression, value = calculation(rng)
        question = words.casual(rng, rng.choice(ASK_CALCULATOR).format(e=spoken), typos=False)
    shown = plain(value)
    memory.number = int(value) if shown.lstrip("-").isdigit() and abs(value) < 10**7 else None
    arguments = json.dumps({key: expression})
    replies = pause(setting, rng, f"I use {name}.", f"The user wants {expression}. {name} gives the exact value.")
    replies += [call(name, arguments), result(name, calculator_result(rng, shown))]
    replies += pause(setting, rng, f"The result is {shown}.", f"{name} returned {shown}. I report it.")
    replies.append(final(f"{expression} = {shown}" if rng.random() < 0.85 else f"The result is {shown}."))
    return Turn(question, replies, "calculator", expression,
                {"calls": [(name, json.loads(arguments))], "contains": [shown]})


# ---- weather ----------------------------------------------------------------------------

ASK_WEATHER = ["What is the weather in {c}?", "weather in {c}", "How is the weather in {c}?", "What's the weather like in {c} today?",
               "Is it cold in {c}?", "Do I need a coat in {c}?", "What is the temperature in {c}?", "how warm is it in {c}",
               "Tell me the weather in {c}.", "Weather for {c} please", "Is it raining in {c} right now?",
               "I am going to {c}. How is the weather?", "Check the weather in {c}.", "Current weather {c}?",
               "Will I need an umbrella in {c}?", "How hot is it in {c}?", "give me the weather in {c}",
               "What's it like outside in {c}?"]
UNIT_WORDS = {"celsius": [" in celsius", " in Celsius", " (celsius)"], "fahrenheit": [" in fahrenheit", " in Fahrenheit", " (fahrenheit)", " in degrees Fahrenheit"]}


def with_unit(question: str, words_for_unit: str) -> str:
    end = question[-1] if question[-1] in ".?" else ""
    return question.removesuffix(end) + words_for_unit + end if end else question + words_for_unit


def weather_result(rng: random.Random, city: str, unit: str) -> tuple[str, str, list[str]]:
    degrees = rng.randint(-15, 40) if unit == "celsius" else rng.randint(5, 104)
    sign = "°C" if unit == "celsius" else "°F"
    sky = rng.choice(CONDITIONS)
    key = rng.choice(["condition", "description", "sky", "conditions", "summary"])
    forms = [
        json.dumps({"city": city, "temperature": degrees, "unit": unit, key: sky}, ensure_ascii=False),
        json.dumps({"temperature": degrees, key: sky}),
        json.dumps({"temperature": degrees, "unit": unit, key: sky}, separators=(",", ":")),
        json.dumps({"location": city, "temp": degrees, "unit": unit, key: sky}),
        json.dumps({key: sky, "temperature": f"{degrees}{sign}"}, ensure_ascii=False),
        json.dumps({"city": city, "temperature": degrees, "unit": unit, key: sky, "humidity": rng.randint(10, 99)}),
        json.dumps({"temp_c" if unit == "celsius" else "temp_f": degrees, key: sky}),
        f"{degrees} {sign}, {sky}", f"{sky}, {degrees}{sign}", f"{degrees} degrees {unit} and {sky}",
    ]
    if rng.random() < 0.08:
        text = rng.choice([f"{degrees}{sign}", json.dumps({"temperature": degrees})])
        return text, f"It is {degrees} {sign} in {city}.", [str(degrees)]
    return rng.choice(forms), f"It is {degrees} {sign} and {sky} in {city}.", [str(degrees), sky]


def weather_call(tool: dict, city: str, unit: str | None) -> str:
    names = list(tool["parameters"]["properties"])
    arguments = {names[0]: city}
    if len(names) > 1:
        if unit:
            arguments[names[1]] = unit
        elif names[1] in tool["parameters"]["required"]:
            arguments[names[1]] = "celsius"
    return json.dumps(arguments, ensure_ascii=False)


def failed(rng: random.Random, name: str) -> tuple[str, str]:
    reason = rng.choice(["not found", "timeout", "service unavailable", "unknown city", "no data", "rate limit"])
    text = rng.choice([f'{{"error": "{reason}"}}', f"error: {reason}", f"Error: {reason}"])
    return text, f"The tool {name} reported an error: {reason}."


def look_up_weather(rng: random.Random, setting: Setting, tool: dict, city: str, unit: str | None) -> tuple[list[Message], str, list, tuple]:
    name = tool["name"]
    arguments = weather_call(tool, city, unit)
    answered, spoken, contains = weather_result(rng, city, unit or "celsius")
    if rng.random() < 0.05:
        answered, spoken = failed(rng, name)
        contains = [spoken.rsplit(": ", 1)[1].rstrip(".")]
    messages = pause(setting, rng, f"I call {name} for {city}.", f"The user asks about the weather in {city}. I call {name}.")
    messages += [call(name, arguments), result(name, answered)]
    return messages, spoken, contains, (name, json.loads(arguments))


def use_weather(rng: random.Random, setting: Setting, tool: dict, memory: Memory) -> Turn:
    units = len(tool["parameters"]["properties"]) > 1
    unit = rng.choice(["celsius", "fahrenheit"]) if units and rng.random() < 0.35 else None
    city = words.city(rng)
    follow = memory.city is not None and rng.random() < 0.6
    if follow:
        unit = None
        question = rng.choice(["And in {c}?", "What about {c}?", "and {c}?", "How about {c}?", "The same for {c} please."]).format(c=city)
    elif rng.random() < 0.12:
        return use_weather_twice(rng, setting, tool, memory)
    else:
        question = rng.choice(ASK_WEATHER).format(c=city)
        question = with_unit(question, rng.choice(UNIT_WORDS[unit])) if unit else question
        question = words.casual(rng, question, typos=False, lower=False)
    memory.city = city
    messages, spoken, contains, made = look_up_weather(rng, setting, tool, city, unit)
    messages += pause(setting, rng, "I have the weather now.", f"{tool['name']} answered. I tell the user in one sentence.")
    return Turn(question, messages + [final(spoken)], "weather", f"weather {city} {unit} {question}",
                {"calls": [made], "contains": contains})


def use_weather_twice(rng: random.Random, setting: Setting, tool: dict, memory: Memory) -> Turn:
    first, second = rng.sample(words.CITIES, 2)
    question = rng.choice(["What is the weather in {a} and {b}?", "Compare the weather in {a} and {b}.", "weather in {a} and in {b}?",
                           "How is the weather in {a} and in {b}?"]).format(a=first, b=second)
    one, spoken_one, contains_one, made_one = look_up_weather(rng, setting, tool, first, None)
    two, spoken_two, contains_two, made_two = look_up_weather(rng, setting, tool, second, None)
    memory.city = second
    messages = one + two + pause(setting, rng, "I have both now.", "Both cities are answered. I tell the user.")
    return Turn(question, messages + [final(f"{spoken_one} {spoken_two}")], "weather", question,
                {"calls": [made_one, made_two], "contains": contains_one + contains_two})


# ---- clock ------------------------------------------------------------------------------

ASK_CLOCK = ["What time is it in {c}?", "time in {c}", "What's the time in {c}?", "Tell me the time in {c}.", "How late is it in {c}?",
             "Can you check the clock in {c}?", "current time in {c}?", "what time is it right now in {c}", "I want to call someone in {c}. What time is it there?",
             "Is it still morning in {c}?", "Local time in {c} please", "Do you know what time it is in {c}?"]


def clock_result(rng: random.Random, zone: str, time: str) -> str:
    return rng.choice([time, json.dumps({"time": time}), json.dumps({"timezone": zone, "time": time}),
                       json.dumps({"time": time, "date": words.iso_date(rng)}),
                       json.dumps({"datetime": f"{words.iso_date(rng)}T{time}:00"}), f"{time} in {zone}"])


def use_clock(rng: random.Random, setting: Setting, tool: dict, memory: Memory) -> Turn:
    name, key = tool["name"], next(iter(tool["parameters"]["properties"]))
    if key == "timezone":
        place = rng.choice(list(ZONES_AND_UTC))
        value = ZONES_AND_UTC[place]
        if rng.random() < 0.15:
            place = value
    else:
        place = value = words.city(rng)
    time = words.clock_time(rng)
    memory.city = None  # "and in Rome?" would no longer mean the weather
    question = words.casual(rng, rng.choice(ASK_CLOCK).format(c=place), typos=False, lower=False)
    arguments = json.dumps({key: value}, ensure_ascii=False)
    answered, spoken, contains = clock_result(rng, value, time), f"It is {time} in {place}.", [time]
    if rng.random() < 0.04:
        answered, spoken = failed(rng, name)
        contains = [spoken.rsplit(": ", 1)[1].rstrip(".")]
    replies = pause(setting, rng, f"I call {name} for {value}.", f"The user asks for the time in {place}. I call {name} with {value}.")
    replies += [call(name, arguments), result(name, answered)]
    replies += pause(setting, rng, "I have the time now.", f"{name} answered. I tell the user in one sentence.")
    replies.append(final(spoken))
    return Turn(question, replies, "clock", f"clock {place} {question}",
                {"calls": [(name, json.loads(arguments))], "contains": contains})


ZONES_AND_UTC = {**words.ZONES, "UTC": "UTC"}


# ---- others -----------------------------------------------------------------------------

TOPICS = ["electric bikes", "tomato soup", "garden birds", "old maps", "jazz music", "blue whales", "paper planes", "solar panels",
          "chess openings", "train tickets", "rose gardens", "mountain huts", "sourdough bread", "rain boots"]
PHRASES = ["good morning", "see you soon", "I will be late", "thank you very much", "dinner is ready", "happy birthday", "call me back",
           "the train leaves at nine", "where are you", "the meeting is over"]


def use_other(rng: random.Random, setting: Setting, entry: tuple, tool: dict) -> Turn:
    amount = rng.randint(1, 2000)
    pool = {"minutes": rng.randint(1, 90), "query": rng.choice(TOPICS) if rng.random() < 0.5 else f"{words.made_up(rng)} {words.made_up(rng)}",
            "amount": amount, "from_currency": rng.choice(["USD", "GBP", "JPY"]), "to_currency": rng.choice(["EUR", "CHF", "SEK"]),
            "symbol": "".join(rng.choice("ABCDEFGHIKLMNOPRSTUVX") for _ in range(rng.choice([3, 4]))),
            "order_id": rng.choice(["A", "B", "R", "X", ""]) + str(rng.randint(100, 99999)), "to": words.first_name(rng),
            "text": rng.choice(PHRASES), "room": rng.choice(["kitchen", "hall", "bedroom", "office", "garage", "bathroom"]),
            "language": rng.choice(["French", "German", "Spanish", "Italian"])}
    extra = {"money": f"{rng.randint(1, 999)}.{rng.randint(10, 99)}", "status": rng.choice(["on its way", "delivered", "in the warehouse", "cancelled"]),
             "other": f"{words.made_up(rng)} {words.made_up(rng)}"}
    values = {key: pool[key] for key, _ in entry[2]}
    name, arguments = tool["name"], json.dumps(values)
    spoken = entry[5].format(**values, **extra)
    question = rng.choice(entry[3]).format(**values)
    replies = pause(setting, rng, f"I call {name}.", f"The user's request fits {name}. I call it.")
    replies += [call(name, arguments), result(name, entry[4].format(**values, **extra))]
    replies += pause(setting, rng, "Done, I report it.", f"{name} answered. I tell the user in one sentence.")
    return Turn(question, replies + [final(spoken)], "other tool", f"{name} {arguments}",
                {"calls": [(name, values)], "contains": []})


def turn(rng: random.Random, setting: Setting, tools: list[tuple[str, dict]], memory: Memory) -> Turn:
    role, tool = rng.choice(tools)
    if role == "calculator":
        return use_calculator(rng, setting, tool, memory)
    if role == "weather":
        return use_weather(rng, setting, tool, memory)
    if role == "clock":
        return use_clock(rng, setting, tool, memory)
    return use_other(rng, setting, next(e for e in OTHERS if e[0] == role), tool)
