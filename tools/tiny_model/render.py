"""Harmony rendering: the text a gpt-oss server feeds its model.

A conversation is a list of `Piece`: text plus whether the model must learn it. Special
tokens are written as their strings here; they are safe because no generated text holds
them (`generate.py` checks).
"""

import dataclasses
import json

IDENTITY = "You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06"
CHANNELS = "# Valid channels: analysis, commentary, final. Channel must be included for every message."
TOOL_CHANNEL = "Calls to these tools must go to the commentary channel: 'functions'."


@dataclasses.dataclass
class Message:
    """One message. `learn` marks what the model itself writes and is trained on."""

    role: str  # user, assistant, or functions.NAME
    text: str
    channel: str | None = None
    recipient: str | None = None
    learn: bool = False


@dataclasses.dataclass
class Setting:
    """What stands before the first user message."""

    effort: str = "medium"
    date: str = "2025-06-28"
    instructions: str | None = None
    tools: list[dict] = dataclasses.field(default_factory=list)
    response_format: dict | None = None


def system_text(setting: Setting) -> str:
    text = f"{IDENTITY}\nCurrent date: {setting.date}\n\nReasoning: {setting.effort}\n\n{CHANNELS}"
    return text + "\n" + TOOL_CHANNEL if setting.tools else text


def default_text(value, is_enum: bool) -> str:
    if isinstance(value, str):
        return value if is_enum else f'"{value}"'
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def object_text(schema: dict, indent: str) -> str:
    lines = [f"{indent}// {schema['description']}\n"] if schema.get("description") else []
    lines.append("{\n")
    required = schema.get("required", [])
    for name, value in schema.get("properties", {}).items():
        if value.get("title"):
            lines.append(f"{indent}// {value['title']}\n{indent}//\n")
        if value.get("description"):
            lines += [f"{indent}// {line}\n" for line in value["description"].split("\n")]
        examples = [e for e in value.get("examples", []) if isinstance(e, str)]
        if value.get("examples"):
            lines.append(f"{indent}// Examples:\n")
            lines += [f'{indent}// - "{e}"\n' for e in examples]
        text = type_text(value, indent + "    ")
        if value.get("nullable") and "null" not in text:
            text += " | null"
        mark = "" if name in required else "?"
        line = f"{indent}{name}{mark}: {text},"
        if "default" in value:
            line += f" // default: {default_text(value['default'], bool(value.get('enum')))}"
        lines.append(line + "\n")
    return "".join(lines) + indent + "}"


def type_text(schema: dict, indent: str = "") -> str:
    """JSON Schema -> TypeScript-like text; `oneOf` is left out, no tool here needs it."""
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join("number" if k == "integer" else k for k in kind)
    if kind == "object":
        return object_text(schema, indent)
    if kind == "string":
        names = [f'"{e}"' for e in schema.get("enum", []) if isinstance(e, str)]
        return " | ".join(names) or "string"
    if kind in ("number", "integer"):
        return "number"
    if kind == "boolean":
        return "boolean"
    if kind == "array":
        return type_text(schema["items"], indent) + "[]" if "items" in schema else "Array<any>"
    return "any"


def function_text(tool: dict) -> str:
    description = tool.get("description") or ""
    lines = "".join(f"// {line}\n" for line in description.split("\n")) if description else ""
    parameters = tool.get("parameters")
    no_arguments = parameters is None or (parameters.get("type") == "object" and not parameters.get("properties"))
    argument = "" if no_arguments else f"_: {type_text(parameters)}"
    return f"{lines}type {tool['name']} = ({argument}) => any;\n\n"


def format_text(response_format: dict) -> str:
    text = f"## {response_format['name']}\n\n"
    if response_format.get("description"):
        text += f"// {response_format['description']}\n"
    return text + json.dumps(response_format["schema"], separators=(",", ":"), ensure_ascii=False)


def developer_text(setting: Setting) -> str | None:
    sections = []
    if setting.instructions:
        sections.append(f"# Instructions\n\n{setting.instructions}")
    if setting.tools:
        functions = "".join(function_text(tool) for tool in setting.tools)
        sections.append("# Tools\n\n## functions\n\nnamespace functions {\n\n" + functions + "} // namespace functions")
    if setting.response_format:
        sections.append("# Response Formats\n\n" + format_text(setting.response_format))
    return "\n\n".join(sections) or None


def header(message: Message) -> str:
    if message.role.startswith("functions."):
        return f"{message.role} to=assistant<|channel|>commentary"
    if message.recipient:
        return f"{message.role}<|channel|>{message.channel} to={message.recipient} <|constrain|>json"
    if message.channel:
        return f"{message.role}<|channel|>{message.channel}"
    return message.role


def drop_old_analysis(messages: list[Message]) -> list[Message]:
    """Reasoning of finished turns is not shown again."""
    finals = [i for i, m in enumerate(messages) if m.channel == "final" and not m.learn]
    last = finals[-1] if finals else -1
    return [m for i, m in enumerate(messages) if i > last or m.channel != "analysis"]


def ending(message: Message) -> str:
    if message.recipient:
        return "<|call|>"
    return "<|return|>" if message.channel == "final" and message.learn else "<|end|>"


def prompt_pieces(setting: Setting) -> str:
    text = f"<|start|>system<|message|>{system_text(setting)}<|end|>"
    developer = developer_text(setting)
    return text + (f"<|start|>developer<|message|>{developer}<|end|>" if developer else "")


def render(setting: Setting, messages: list[Message]) -> list[tuple[str, bool]]:
    """[(text, learn)]. `<|start|>assistant` itself is given at inference for a turn's first
    message only; it is learned for the next ones, because the model writes those itself."""
    pieces = [(prompt_pieces(setting), False)]
    continues = False  # the previous message was the model's and did not stop generation
    for message in drop_old_analysis(messages):
        if message.role == "assistant":
            pieces.append(("<|start|>assistant", message.learn and continues))
            body = header(message).removeprefix("assistant") + "<|message|>" + message.text + ending(message)
            pieces.append((body, message.learn))
            continues = message.learn and ending(message) == "<|end|>"
        else:
            pieces.append((f"<|start|>{header(message)}<|message|>{message.text}<|end|>", False))
            continues = False
    return pieces


def prompt(setting: Setting, messages: list[Message]) -> str:
    return "".join(text for text, _ in render(setting, messages)) + "<|start|>assistant"
