#include "chat.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <string>

#include "ask.h"
#include "load.h"

namespace rose {
namespace {

std::atomic<bool> interrupted{false};

struct ChatOptions {
  LoadOptions load;
  DecodingOptions decoding;
  std::string effort = "medium";
  std::string instructions;
  bool hide_analysis = false;
};

std::string today_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", &utc);
  return text;
}

std::optional<ReasoningEffort> effort_from(const std::string& name) {
  if (name == "low") return ReasoningEffort::kLow;
  if (name == "medium") return ReasoningEffort::kMedium;
  if (name == "high") return ReasoningEffort::kHigh;
  return std::nullopt;
}

// Colours only on a terminal, and not where NO_COLOR is set.
class Terminal {
 public:
  Terminal() : colours_(isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr) {}

  // Prints a delta under the name of its channel; a new name starts a new line. The colour holds until the line ends.
  void delta(const std::string& channel, const char* colour, const std::string& text) {
    if (channel != channel_) {
      end();
      channel_ = channel;
      std::cout << paint("2", channel + std::string(channel.size() < 10 ? 10 - channel.size() : 1, ' '));
      if (colours_) std::cout << "\033[" << colour << "m";
    }
    for (const char c : text) {
      if (c == '\n') {
        std::cout << "\n          ";
      } else {
        std::cout << c;
      }
    }
    std::cout << std::flush;
  }
  void end() {
    if (!channel_.empty()) std::cout << (colours_ ? "\033[0m\n" : "\n");
    channel_.clear();
  }
  void note(const std::string& text) {
    end();
    std::cout << paint("2", text) << "\n" << std::flush;
  }
  std::string paint(const char* colour, const std::string& text) const {
    return colours_ && !text.empty() ? fmt::format("\033[{}m{}\033[0m", colour, text) : text;
  }

 private:
  bool colours_;
  std::string channel_;
};

class Chat {
 public:
  Chat(const LoadedModel& model, const ChatOptions& options) : model_(model), options_(options) {
    conversation_.effort = *effort_from(options.effort);
    conversation_.date = today_utc();
    reset();
  }

  // False: leave.
  bool line(const std::string& text) {
    if (text.empty()) return true;
    if (text[0] == '/') return command(text);
    conversation_.messages.push_back({.role = Role::kUser, .content = text});
    answer();
    return true;
  }

  Terminal& terminal() { return terminal_; }

 private:
  void reset() {
    conversation_.messages.clear();
    if (!options_.instructions.empty()) {
      conversation_.messages.push_back({.role = Role::kDeveloper, .content = options_.instructions});
    }
  }

  bool command(const std::string& text) {
    const std::string word = text.substr(0, text.find(' '));
    const std::string rest = word.size() < text.size() ? text.substr(word.size() + 1) : "";
    if (word == "/quit" || word == "/exit") return false;
    if (word == "/reset") {
      reset();
      terminal_.note("A new conversation.");
    } else if (word == "/effort" && effort_from(rest)) {
      conversation_.effort = *effort_from(rest);
      terminal_.note("Reasoning effort is " + rest + ".");
    } else if (word == "/instructions") {
      options_.instructions = rest;
      reset();
      terminal_.note(rest.empty() ? "No instructions; a new conversation." : "Instructions set; a new conversation.");
    } else if (word == "/tokens") {
      show_tokens();
    } else {
      terminal_.note(
          "/effort low|medium|high   how long the model thinks\n"
          "/instructions TEXT        what the developer asks of the model; starts anew\n"
          "/tokens                   the conversation as the model sees it\n"
          "/reset                    start anew\n"
          "/quit                     leave (or Ctrl-D); Ctrl-C stops an answer");
    }
    return true;
  }

  void show_tokens() {
    const auto ids = model_.chat_format->render(conversation_);
    if (!ids) return terminal_.note(ids.error().message);
    terminal_.note(fmt::format("{}\n{} tokens", model_.tokenizer->decode_all(*ids), ids->size()));
  }

  void show(const ChatEvent& event) {
    switch (event.kind) {
      case ChatEventKind::kReasoning:
        if (!options_.hide_analysis) terminal_.delta("analysis", "2", event.text);
        break;
      case ChatEventKind::kContent:
        terminal_.delta("final", "0", event.text);
        break;
      case ChatEventKind::kToolCallBegin:
        terminal_.delta("call " + event.name, "36", "");
        break;
      case ChatEventKind::kToolCallArguments:
        terminal_.delta("call " + name_of(event), "36", event.text);
        break;
      case ChatEventKind::kToolCallEnd:
        terminal_.end();
        break;
    }
    if (event.kind == ChatEventKind::kToolCallBegin) call_name_ = event.name;
  }
  std::string name_of(const ChatEvent& event) const { return event.name.empty() ? call_name_ : event.name; }

  void answer() {
    interrupted = false;
    const Result<Turn> turn = ask(*model_.engine, *model_.chat_format, conversation_, options_.decoding, interrupted,
                                  [&](const ChatEvent& event) { show(event); });
    terminal_.end();
    if (!turn) {
      conversation_.messages.pop_back();
      return terminal_.note(turn.error().message);
    }
    conversation_.messages.push_back(
        {.role = Role::kAssistant, .content = turn->content, .reasoning = turn->reasoning});
    const double decode_s = turn->total_s - turn->first_token_s;
    terminal_.note(fmt::format("          {} + {} tokens, first after {:.0f} ms, then {:.0f} tokens/s{}",
                               turn->prompt_tokens, turn->tokens, turn->first_token_s * 1e3,
                               decode_s > 0 ? (turn->tokens - 1) / decode_s : 0.0,
                               turn->finish == FinishReason::kLength ? " (cut: out of room)" : ""));
  }

  const LoadedModel& model_;
  ChatOptions options_;
  Conversation conversation_;
  Terminal terminal_;
  std::string call_name_;
};

int run_chat(const ChatOptions& options) {
  const LoadedModel model = load(options.load, terminal_progress("loading"));
  Chat chat(model, options);
  chat.terminal().note(model.summary + "Type a message; /help lists commands, Ctrl-C stops an answer, Ctrl-D leaves.");
  // Ctrl-C ends the answer, not the program: no SA_RESTART games, the answer loop looks at the flag.
  std::signal(SIGINT, [](int) { interrupted = true; });
  const bool asks = isatty(STDIN_FILENO) != 0;
  for (std::string line;;) {
    if (asks) std::cout << "\n" << chat.terminal().paint("1", "> ") << std::flush;
    if (!std::getline(std::cin, line) || !chat.line(line)) break;
  }
  if (asks) std::cout << "\n";
  model.engine->stop(Clock::now());
  return 0;
}

}  // namespace

void register_chat(CLI::App& app) {
  auto options = std::make_shared<ChatOptions>();
  CLI::App* command = app.add_subcommand("chat", "talk to a model in the terminal, with its channels shown");
  add_load_options(*command, options->load);
  command->add_option("--effort", options->effort, "reasoning effort: low, medium or high")
      ->check(CLI::IsMember({"low", "medium", "high"}))
      ->capture_default_str();
  command->add_option("--instructions", options->instructions, "what the developer asks of the model");
  command->add_option("--temperature", options->decoding.temperature, "0: always the most likely token")
      ->check(CLI::Range(0.0, 2.0))
      ->capture_default_str();
  command->add_option("--top-p", options->decoding.top_p)->check(CLI::Range(0.0, 1.0))->capture_default_str();
  command->add_flag("--hide-analysis", options->hide_analysis, "show only what is meant for the user");
  command->callback([options] {
    if (const int code = run_chat(*options); code != 0) throw CLI::RuntimeError(code);
  });
}

}  // namespace rose
