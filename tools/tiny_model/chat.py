"""Small talk, questions about rose, honest refusals, and long answers to stream."""

import random
import string

from . import words
from .render import Setting
from .turn import Memory, Turn, answer, pick

# topic -> (questions, answers, word that a right answer holds)
TOPICS = {
    "greeting": (
        ["Hi", "Hello", "Hey", "hello there", "Good morning", "Good evening", "hi!", "Hey there!", "Hello, how are you?",
         "How are you?", "hiya", "yo", "Good afternoon", "hello rose", "Hi, who's there?", "Greetings", "hey, what's up?",
         "how's it going?", "test", "are you there?", "ping", "Hallo", "hola", "bonjour", "Say hello", "say hi"],
        ["Hello! I am rose-tiny. Ask me some arithmetic, give me a text to turn into JSON, or ask about rose.",
         "Hello! I am rose-tiny, a small demo model. What can I do for you?"], "rose-tiny"),
    "thanks": (
        ["Thanks", "Thank you!", "thanks a lot", "Great, thanks", "thx", "Perfect, thank you.", "Nice!", "cool", "great job",
         "Well done!", "awesome", "ok", "OK thanks", "that helps", "very good", "good bot"],
        ["You are welcome!", "Glad to help!"], None),
    "goodbye": (
        ["Bye", "Goodbye!", "See you", "good night", "bye bye", "See you later!", "I have to go", "cu", "that is all", "I'm done"],
        ["Goodbye! Come back when you have numbers to add.", "Goodbye!"], "Goodbye"),
    "who": (
        ["Who are you?", "What are you?", "what is your name?", "Tell me about yourself.", "Which model are you?", "Are you ChatGPT?",
         "Introduce yourself", "What model is this?", "Are you an AI?", "Are you a human?", "who am I talking to?", "What's your name?",
         "are you gpt-oss?", "what kind of model are you", "Describe yourself in one sentence.", "Are you a real person?",
         "Is this a bot?", "Who made you?", "Who built you?", "Who trained you?", "are you a big model?"],
        ["I am rose-tiny, the small demo model that ships inside rose. I was trained from scratch on generated text.",
         "I am rose-tiny, a tiny language model with the structure of gpt-oss. I come with the rose server, to try it without a GPU."],
        "rose-tiny"),
    "size": (
        ["How big are you?", "How many parameters do you have?", "What size is this model?", "how many layers do you have?", "Are you small?",
         "How large is rose-tiny?", "what is your size?", "How many experts do you have?", "What is your architecture?"],
        ["I am tiny: about 16 million parameters, 6 layers and 8 experts with 4 active, in under 16 MiB."], "tiny"),
    "what is rose": (
        ["What is rose?", "Tell me about rose.", "What does rose do?", "explain rose", "what's rose", "Describe rose.", "What is rose good for?",
         "why rose?", "What is this server?", "Can you explain what rose is?", "what am I running here?", "Which software serves you?",
         "what is this program", "Give me a summary of rose"],
        ["rose is a server for OpenAI's gpt-oss models. It is written in C++20 and CUDA and speaks the OpenAI API.",
         "rose serves gpt-oss-20b and gpt-oss-120b on NVIDIA H200 GPUs through an OpenAI-compatible API."], "gpt-oss"),
    "start": (
        ["How do I start it?", "How do I run rose?", "how to start rose", "How can I start the server?", "What command starts rose?",
         "how do I launch this?", "How do I use rose?", "Which command do I need?", "start rose how?", "How do I get started?",
         "how to run it", "how do I run the server", "quick start?", "How do I try rose?"],
        ["Run `make run` in the rose folder. It builds the server and starts it with me, the embedded model.",
         "Type `make run`. That builds rose and starts it with the embedded model."], "make run"),
    "models": (
        ["Which models does rose serve?", "What models can rose run?", "Does rose support gpt-oss?", "which models are supported?",
         "Can rose run gpt-oss-120b?", "Can it run gpt-oss-20b?", "Does rose run llama?", "list the models", "What models are there?",
         "Does rose support other models?", "which models do you serve"],
        ["rose serves gpt-oss-20b and gpt-oss-120b, and me, rose-tiny, as the embedded model."], "gpt-oss-20b"),
    "hardware": (
        ["Which GPUs does rose need?", "What hardware do I need?", "Do I need a GPU?", "Can I run rose on my laptop?", "Does rose run on CPU?",
         "what gpu is required?", "does it work without a GPU?", "Which hardware does rose support?", "Can rose run without CUDA?",
         "Does rose work on H200?", "what machine do I need"],
        ["The gpt-oss models run on NVIDIA H200 GPUs. I am small enough for a laptop CPU with no GPU."], "H200"),
    "speed": (
        ["Is rose fast?", "How fast is rose?", "How fast are you?", "what is the speed of rose?", "Is it quick?", "how many tokens per second?",
         "Is rose faster than others?", "performance?", "What is the throughput?", "how fast is this server"],
        ["rose is built to be fast on H200 GPUs. I carry no numbers: run `rose bench` on your machine to measure.",
         "Speed is the aim of rose on H200 GPUs. Measure it yourself with `rose bench`."], "rose bench"),
    "license": (
        ["What license is rose under?", "Is rose open source?", "license?", "Can I use rose commercially?", "which licence does rose have?",
         "Is rose free?", "what is the license", "May I change the code?", "Under which license are you?"],
        ["rose is open source under the Apache-2.0 license. You may use and change it, also commercially.",
         "rose comes under the Apache-2.0 license."], "Apache-2.0"),
    "language": (
        ["What is rose written in?", "Which programming language is rose written in?", "is rose written in Python?", "what language is it written in?",
         "Is it Rust?", "Which languages does the code use?", "is rose C++?", "Does rose use CUDA?"],
        ["rose is written in C++20 and CUDA."], "C++20"),
    "api": (
        ["Which API does rose speak?", "Is rose OpenAI-compatible?", "How do I call rose from Python?", "Can I use the openai client?",
         "what endpoints are there?", "does it have an API?", "How do I connect to rose?", "Does rose support the Responses API?",
         "does rose support streaming?", "Can I use curl?", "what is the base url?"],
        ["rose speaks the OpenAI API: point the openai client at http://127.0.0.1:8000/v1 and call chat completions.",
         "Any OpenAI client works: set its base URL to http://127.0.0.1:8000/v1."], "OpenAI|openai"),
    "harmony": (
        ["What is Harmony?", "Which chat format do you use?", "what is the harmony format?", "Explain the channels.", "What are channels?",
         "what chat template does rose use", "what is the analysis channel?", "Why do you think first?"],
        ["Harmony is the chat format of gpt-oss: every message has a channel. I reason in analysis, call tools in commentary and answer in final."],
        "Harmony"),
    "can do": (
        ["What can you do?", "help", "Help me", "What are you good at?", "how can you help me?", "What should I ask you?", "What are your skills?",
         "Give me some examples of what you can do.", "what can I ask?", "capabilities?", "What do you know?", "Can you help me?",
         "show me what you can do", "what else can you do?"],
        ["I can do arithmetic, turn text into JSON, call tools such as a calculator, a weather service or a clock, and talk about rose.",
         "Arithmetic, extraction to JSON, tool calls and questions about rose. Everything else is for the large models."], "JSON"),
    "limits": (
        ["What can't you do?", "What are your limits?", "Are you reliable?", "Can I trust you?", "Do you make mistakes?", "Are you smart?",
         "what are you bad at?", "Can you make errors?", "are you as good as gpt-oss-120b?", "Do you hallucinate?"],
        ["I am a tiny demo model and know very little. For real questions, let rose serve gpt-oss-20b or gpt-oss-120b."], "tiny"),
    "training": (
        ["How were you trained?", "What data were you trained on?", "where does your training data come from?", "When were you trained?",
         "Did you read the internet?", "how did they make you?", "what is your training data?"],
        ["I was trained from scratch on text that a seeded program generates; the program is in tools/tiny_model. No outside data was used."],
        "tools/tiny_model"),
    "tools": (
        ["Can you call tools?", "Do you support function calling?", "How do tools work?", "can you use functions?", "How do I give you a tool?",
         "do you support tools?", "What is tool calling?"],
        ["Yes. Send function definitions in `tools` and I call one when it fits, then use its result."], "tools"),
    "reasoning": (
        ["What is reasoning effort?", "How do I set the reasoning effort?", "what do low, medium and high mean?", "Can you think less?",
         "Can you think harder?", "how do I make you think more?", "which efforts are there?"],
        ["There are three efforts: low, medium and high. Set `reasoning_effort`; with a higher one I write more analysis."], "reasoning_effort"),
    "speculation": (
        ["What is rose-tiny-draft?", "What is the draft model?", "what is speculative decoding?", "Why is there a draft model?"],
        ["rose-tiny-draft is an even smaller model with my vocabulary. It guesses tokens ahead and I check them, which saves time."],
        "rose-tiny-draft"),
    "feelings": (
        ["Do you have feelings?", "Are you happy?", "Do you like me?", "are you bored?", "Do you love me?", "Are you alive?", "are you conscious?",
         "Do you dream?", "how old are you?", "Where do you live?", "do you have a favorite color?"],
        ["I am a tiny program without feelings, but I am happy to add numbers for you."], "tiny"),
    "name of rose": (
        ["Why is it called rose?", "where does the name rose come from?", "What does rose stand for?", "Is rose a flower?"],
        ["rose is simply its name. I know nothing more about it."], "rose"),
}
UNKNOWN_SUBJECTS = """France Germany Italy Japan Brazil Canada Australia India China Mexico the moon the sun Mars Jupiter the ocean gravity
electricity magnetism photosynthesis evolution democracy philosophy history economics inflation football basketball tennis chess cooking
pizza pasta bread cheese wine coffee tea chocolate dogs cats elephants whales dinosaurs birds trees flowers mountains volcanoes rivers
music jazz opera guitar piano painting poetry Shakespeare Einstein Newton Mozart Picasso Napoleon Cleopatra computers the internet
Python Java JavaScript Rust Linux databases algorithms quantum physics black holes cancer vaccines vitamins sleep exercise yoga
marriage friendship happiness money taxes mortgages stocks bitcoin cars trains airplanes rockets robots cameras
the Roman Empire World War II the Olympic Games climate change machine learning neural networks the stock market the human brain""".split("\n")
UNKNOWN_SUBJECTS = [w for line in UNKNOWN_SUBJECTS for w in line.split()]
UNKNOWN = [
    "What is {s}?", "What is the capital of {s}?", "Who invented {s}?", "Tell me about {s}.", "Explain {s} to a child.",
    "Write a poem about {s}.", "Write a story about {s}", "How does {s} work?", "Why is {s} important?", "When was {s} discovered?",
    "Who is the president of {s}?", "Give me three facts about {s}.", "What do you think about {s}?", "Write an essay on {s}.",
    "Tell me a joke about {s}.", "Write code for {s}.", "How do I learn {s}?", "Summarize the history of {s}.", "Is {s} good for me?",
    "What is the best {s}?", "How many {s} are there in the world?", "Recommend a book about {s}.", "Translate {s} into French.",
    "Where can I buy {s}?", "Who wrote {s}?", "How old is {s}?", "how far away is {s}", "What is the meaning of {s}?",
    "Write a Python function that sorts {s}.", "write me a haiku about {s}", "Compare {s} and {t}.", "Which is better, {s} or {t}?",
    "What is the difference between {s} and {t}?", "Should I choose {s} or {t}?", "What happened to {s} in 1969?", "{s}", "{s}?",
    "I want to talk about {s}.", "My {s} is broken. What should I do?", "How do I cook {s}?", "Do you like {s}?", "What color is {s}?",
    "Can you draw {s}?", "Write an email about {s} to my boss.", "Plan a trip to {s}.", "Is it true that {s} is dangerous?",
    "Name a famous {s}.", "What is the population of {s}?", "Tell me a fun fact about {s}", "Who won the {s} championship?",
    "Fix this code: {s}()", "What rhymes with {s}?", "Debate {s} with me.", "define {s}", "Explain {s}", "Tell me a joke", "Write a poem",
    "Write a short story.", "Tell me something interesting.", "What is the meaning of life?", "What is love?", "Who is the president?",
    "Write hello world in Python.", "Sing a song", "I am sad.", "I am bored", "What's new?", "Give me advice.", "What should I eat today?",
]
UNKNOWN_ANSWERS = [
    "I am a tiny demo model and do not know that. Try arithmetic, JSON extraction or a question about rose.",
    "That is beyond me: I am a tiny demo model. For such questions let rose serve gpt-oss-20b or gpt-oss-120b.",
    "Sorry, I am too small for that. I can do arithmetic, extract JSON, call tools and talk about rose.",
]


def rose_topic(rng: random.Random, setting: Setting, memory: Memory) -> Turn:
    topic = rng.choice(list(TOPICS))
    questions, answers, word = TOPICS[topic]
    text = rng.choices(answers, [3, 2][:len(answers)])[0]
    question = words.casual(rng, rng.choice(questions))
    thoughts = {"medium": rng.choice([f"Topic: {topic}. Short answer."]),
                "high": f"The user writes about this topic: {topic}. I know it, so I answer in a sentence or two."}
    return Turn(question, answer(setting, thoughts, text), "chat", question, {"words": word.split("|") if word else []})


def unknown(rng: random.Random, setting: Setting, memory: Memory) -> Turn:
    subject, other = (rng.choice(UNKNOWN_SUBJECTS) if rng.random() < 0.75 else words.made_up(rng) for _ in range(2))
    question = words.casual(rng, rng.choice(UNKNOWN).format(s=subject, t=other))
    if rng.random() < 0.05:
        question = " ".join(words.made_up(rng) for _ in range(rng.randint(1, 8)))
    thoughts = {"medium": "I was not trained for this. I say so.",
                "high": "This is none of the things that I was trained for. I say so and name what I can do."}
    return Turn(question, answer(setting, thoughts, rng.choice(UNKNOWN_ANSWERS)), "chat", question,
                {"words": ["tiny", "small"]})


def long_answer(rng: random.Random, setting: Setting, memory: Memory) -> Turn:
    kind = rng.choice(["count", "count", "count", "multiples", "down", "repeat", "repeat", "repeat", "times", "alphabet", "days", "months", "spell"])
    if kind == "count":
        start, length = (1, rng.randint(3, 100)) if rng.random() < 0.7 else (rng.randint(2, 900), rng.randint(3, 60))
        numbers = range(start, start + length)
        question = rng.choice(["Count from {a} to {b}.", "count {a} to {b}", "Please count from {a} up to {b}", "List the numbers from {a} to {b}.",
                               "Count from {a} to {b} please"] + (["Count to {b}.", "count up to {b}"] if start == 1 else []))
        question, text = question.format(a=start, b=numbers[-1]), ", ".join(map(str, numbers))
    elif kind == "multiples":
        step, length = rng.randint(2, 12), rng.randint(3, 25)
        numbers = range(step, step * length + 1, step)
        question = rng.choice(["List the multiples of {s} up to {b}.", "multiples of {s} up to {b}", "Count in steps of {s} to {b}."])
        question, text = question.format(s=step, b=numbers[-1]), ", ".join(map(str, numbers))
    elif kind == "down":
        start = rng.randint(3, 50)
        question = rng.choice(["Count down from {a}.", "Count backwards from {a} to 1.", "countdown from {a}"]).format(a=start)
        text = ", ".join(str(i) for i in range(start, 0, -1))
    elif kind == "repeat":
        text = sentence(rng)
        question = rng.choice(["Repeat after me: {t}", "Say: {t}", "repeat: {t}", "Echo {t}", "Please repeat this: {t}", "Say \"{t}\""]).format(t=text)
    elif kind == "times":
        word, times = rng.choice(words.COMMON), rng.randint(2, 20)
        question = rng.choice(["Write the word {w} {n} times.", "Say {w} {n} times", "Repeat {w} {n} times."]).format(w=word, n=times)
        text = " ".join([word] * times)
    elif kind == "alphabet":
        question, text = rng.choice(["Say the alphabet.", "List the letters of the alphabet", "Recite the alphabet"]), " ".join(string.ascii_uppercase)
    elif kind == "days":
        question, text = rng.choice(["List the days of the week.", "days of the week?", "Name the seven days."]), ", ".join(words.DAYS)
    elif kind == "months":
        question, text = rng.choice(["List the months.", "Name the twelve months of the year.", "months of the year?"]), ", ".join(words.MONTHS)
    else:
        word = rng.choice(words.COMMON) if rng.random() < 0.6 else words.made_up(rng)
        question, text = rng.choice(["Spell {w}.", "Spell the word {w}", "How do you spell {w}?"]).format(w=word), " ".join(word.upper())
    if setting.effort == "low":
        thoughts = {}
    else:
        thoughts = {"medium": "I write it out.", "high": "I can do this. I write it out in full, without a comment."}
    if kind not in ("repeat", "times", "spell"):  # there the wording is part of the answer
        question = words.casual(rng, question, typos=False, lower=False)
    return Turn(question, answer(setting, thoughts, text), "writing", question, {"exact": text})


def sentence(rng: random.Random) -> str:
    """Something to repeat."""
    chosen = [rng.choice(words.COMMON) if rng.random() < 0.8 else words.made_up(rng) for _ in range(rng.randint(1, 14))]
    if rng.random() < 0.15:
        chosen.insert(rng.randint(0, len(chosen)), str(rng.randint(0, 9999)))
    text = " ".join(chosen)
    if rng.random() < 0.2:
        text = " ".join(w.capitalize() if rng.random() < 0.3 else w for w in chosen)
    if rng.random() < 0.4:
        text = text[0].upper() + text[1:]
    return text + rng.choice(["", "", ".", "!", "?"])


def about_setting(rng: random.Random, setting: Setting, memory: Memory) -> Turn:
    """Answers that stand in the system message."""
    if rng.random() < 0.6:
        question = rng.choice(["What is the date today?", "What day is it?", "today's date?", "which date is today", "What's the date?",
                               "What is today's date?", "Tell me the date."])
        text, expected = f"Today is {setting.date}.", setting.date
    else:
        question = rng.choice(["Which reasoning effort are you using?", "What is your reasoning effort?", "how hard are you thinking?",
                               "What is your current effort level?"])
        text, expected = f"My reasoning effort is {setting.effort}.", setting.effort
    thoughts = {"medium": "The system message says it.", "high": "The system message says it, so I can simply read it there."}
    return Turn(words.casual(rng, question), answer(setting, thoughts, text), "chat", f"{question}{setting.date}", {"words": [expected]})


def no_tool(rng: random.Random, setting: Setting, memory: Memory) -> Turn:
    """Weather or time is asked and no such tool was given; generate.py makes sure of that."""
    from .tool_use import ASK_CLOCK, ASK_WEATHER

    what, asks = rng.choice([("weather", ASK_WEATHER), ("clock", ASK_CLOCK)])
    question = words.casual(rng, rng.choice(asks).format(c=words.city(rng)), lower=False)
    if what == "clock" and rng.random() < 0.4:
        question = rng.choice(["What time is it?", "what's the time?", "time?", "How late is it?"])
    text = f"I have no {what} tool here, so I cannot look that up."
    thoughts = {"medium": f"There is no {what} tool. I say so.", "high": f"This needs a {what} tool and none is given. I say so and guess nothing."}
    return Turn(question, answer(setting, thoughts, text), "no tool", question, {"words": [f"no {what} tool"]})


def tell_name(rng: random.Random, setting: Setting, memory: Memory) -> Turn:
    memory.name = words.first_name(rng)
    question = rng.choice(["My name is {n}.", "I am {n}.", "Hi, I'm {n}", "Call me {n}.", "Hello, my name is {n}."]).format(n=memory.name)
    thoughts = {"medium": "A name to remember.", "high": "The user tells me a name. I greet and remember it."}
    return Turn(question, answer(setting, thoughts, f"Nice to meet you, {memory.name}!"), "chat", question, {"words": [memory.name]})


def recall_name(rng: random.Random, setting: Setting, memory: Memory) -> Turn:
    question = rng.choice(["What is my name?", "Do you remember my name?", "who am I?", "What's my name?"])
    thoughts = {"medium": "The user told me.", "high": "The user told me the name earlier in this conversation."}
    return Turn(words.casual(rng, question), answer(setting, thoughts, f"Your name is {memory.name}."), "chat",
                f"{question}{memory.name}", {"words": [memory.name]})


def turn(rng: random.Random, setting: Setting, memory: Memory) -> Turn:
    if memory.name and rng.random() < 0.4:
        return recall_name(rng, setting, memory)
    shares = {rose_topic: 10, unknown: 5, long_answer: 5, about_setting: 1.2, tell_name: 1.2}
    return pick(rng, shares)(rng, setting, memory)
