"""Compares render.py with the openai-harmony package.

    TIKTOKEN_ENCODINGS_BASE=<folder with o200k_base.tiktoken> python -m tiny_model.test_render
"""

import json
import re
import unittest

from openai_harmony import (
    Author, Conversation, DeveloperContent, HarmonyEncodingName, Message as CrateMessage,
    ReasoningEffort, RenderConversationConfig, Role, SystemContent, ToolDescription, load_harmony_encoding)

from .generate import Generator
from .render import Message, Setting, prompt

EFFORTS = {"low": ReasoningEffort.LOW, "medium": ReasoningEffort.MEDIUM, "high": ReasoningEffort.HIGH}


def crate_messages(setting: Setting, messages: list[Message]) -> list[CrateMessage]:
    system = SystemContent.new().with_reasoning_effort(EFFORTS[setting.effort]).with_conversation_start_date(setting.date)
    result = [CrateMessage.from_role_and_content(Role.SYSTEM, system)]
    if setting.instructions or setting.tools:
        developer = DeveloperContent.new()
        if setting.instructions:
            developer = developer.with_instructions(setting.instructions)
        if setting.tools:
            developer = developer.with_function_tools([
                ToolDescription.new(t["name"], t.get("description", ""), t.get("parameters")) for t in setting.tools])
        result.append(CrateMessage.from_role_and_content(Role.DEVELOPER, developer))
    for message in messages:
        if message.role.startswith("functions."):
            m = CrateMessage.from_author_and_content(Author.new(Role.TOOL, message.role), message.text)
            m = m.with_channel("commentary").with_recipient("assistant")
        else:
            m = CrateMessage.from_role_and_content(Role(message.role), message.text)
            if message.channel:
                m = m.with_channel(message.channel)
            if message.recipient:
                m = m.with_recipient(message.recipient).with_content_type("<|constrain|>json")
        result.append(m)
    return result


def crate_prompt(encoding, setting: Setting, messages: list[Message]) -> str:
    conversation = Conversation.from_messages(crate_messages(setting, messages))
    ids = encoding.render_conversation_for_completion(
        conversation, Role.ASSISTANT, config=RenderConversationConfig(auto_drop_analysis=False))
    text = encoding.decode(ids)
    # The crate puts a call's recipient after the role; rose after the channel, as the model does.
    return re.sub(r"assistant to=(functions\.\S+?)<\|channel\|>commentary ", r"assistant<|channel|>commentary to=\1 ", text)


class RenderingAgreesWithTheCrate(unittest.TestCase):
    def test_generated_conversations(self):
        encoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
        generator = Generator(seed=77)
        compared = 0
        for _ in range(400):
            setting, messages = generator.conversation()
            empty = any(not t.get("parameters", {}).get("properties") for t in setting.tools)
            if setting.response_format or empty:  # the crate renders neither in our form
                continue
            messages = [m for m in messages if m.channel != "analysis"]
            for m in messages:
                m.learn = False
            self.assertEqual(prompt(setting, messages), crate_prompt(encoding, setting, messages))
            compared += 1
        self.assertGreater(compared, 200)


if __name__ == "__main__":
    unittest.main()
