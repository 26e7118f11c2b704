"""Prints a readable transcript of two conversations with a running server: a streamed answer, and a tool call whose
result goes back.

    python tests/end_to_end/transcript.py --url http://127.0.0.1:8000
"""

import argparse
import json
import sys
import time

from openai import OpenAI

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
RESULT = {"temperature": 21, "sky": "clear"}


class Printer:
    """Shows deltas under the name of what they are."""

    def __init__(self):
        self.kind = None

    def show(self, kind, text):
        if kind != self.kind:
            self.line()
            print(f"{kind:>10} | ", end="")
            self.kind = kind
        print(text.replace("\n", "\n           | "), end="", flush=True)

    def line(self):
        if self.kind:
            print()
        self.kind = None


def stream(client, **request):
    """Prints a streamed answer; returns its message as a client would keep it."""
    out = Printer()
    message = {"role": "assistant", "content": "", "reasoning": "", "tool_calls": []}
    begin, first, finish, usage = time.monotonic(), None, None, None
    for chunk in client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **request):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            delta = choice.delta
            finish = choice.finish_reason or finish
            if getattr(delta, "reasoning", None):
                message["reasoning"] += delta.reasoning
                out.show("reasoning", delta.reasoning)
            if delta.content:
                message["content"] += delta.content
                out.show("assistant", delta.content)
            for call in delta.tool_calls or []:
                if call.id:
                    function = {"name": call.function.name, "arguments": ""}
                    message["tool_calls"].append({"id": call.id, "type": "function", "function": function})
                    out.show("calls", f"{call.function.name}(")
                message["tool_calls"][call.index]["function"]["arguments"] += call.function.arguments or ""
                out.show("calls", call.function.arguments or "")
            if first is None and (delta.content or delta.tool_calls or getattr(delta, "reasoning", None)):
                first = time.monotonic() - begin
    if message["tool_calls"]:
        out.show("calls", ")")
    out.line()
    seconds = time.monotonic() - begin
    print(
        f"           . {finish}; {usage.prompt_tokens} prompt tokens ({usage.prompt_tokens_details.cached_tokens} cached), "
        f"{usage.completion_tokens} generated ({usage.completion_tokens_details.reasoning_tokens} reasoning), "
        f"first after {(first or seconds) * 1e3:.0f} ms, {usage.completion_tokens / seconds:.0f} tokens/s"
    )
    return {key: value for key, value in message.items() if value or key in ("role", "content")}, finish


def say(role, text):
    print(f"{role:>10} | {text}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--key", default="none")
    parser.add_argument("--question", default="Hello! Who are you?")
    parser.add_argument("--tool-question", default="What is the weather in Paris?")
    parser.add_argument("--force", action="store_true", help="force the call (models that do not call by themselves)")
    parser.add_argument("--max-tokens", type=int, default=400)
    parser.add_argument("--temperature", type=float, default=0)
    arguments = parser.parse_args()
    client = OpenAI(base_url=arguments.url + "/v1", api_key=arguments.key)
    common = dict(
        model=client.models.list().data[0].id, max_tokens=arguments.max_tokens, temperature=arguments.temperature, seed=1
    )

    print(f"== a streamed answer of {common['model']}")
    say("user", arguments.question)
    stream(client, messages=[{"role": "user", "content": arguments.question}], **common)

    print("\n== a tool call and its result")
    messages = [{"role": "user", "content": arguments.tool_question}]
    say("user", arguments.tool_question)
    choice = {"type": "function", "function": {"name": "get_weather"}} if arguments.force else "auto"
    message, finish = stream(client, messages=messages, tools=[TOOL], tool_choice=choice, **common)
    if finish != "tool_calls":
        print("           . the model answered without a call (--force makes it call)")
        return 1
    messages.append(message)
    for call in message["tool_calls"]:
        say("tool", json.dumps(RESULT))
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": json.dumps(RESULT)})
    stream(client, messages=messages, tools=[TOOL], **common)
    return 0


if __name__ == "__main__":
    sys.exit(main())
