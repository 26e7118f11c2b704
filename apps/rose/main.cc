// rose: one binary, a sub-command for each job. This file only wires: options, exit codes, error texts.
#include <spdlog/sinks/stdout_color_sinks.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <exception>
#include <sstream>
#include <string>

#include "arguments.h"
#include "base/log.h"
#include "base/result.h"
#include "bench.h"
#include "chat.h"
#include "convert.h"
#include "generate.h"
#include "serve.h"
#include "suggest.h"

namespace {

// Every long option can also be set by the environment: --max-context is ROSE_MAX_CONTEXT. The flag wins.
void name_environment(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands({})) {
    for (CLI::Option* option : command->get_options()) {
      if (option->get_lnames().empty() || option->get_lnames()[0] == "help") continue;
      std::string name = "ROSE_" + option->get_lnames()[0];
      std::transform(name.begin(), name.end(), name.begin(),
                     [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::toupper(c)); });
      option->envname(name);
    }
  }
}

// One line of it: what is not set, and has no value that could be written, becomes a comment; so does a key, because
// such files and terminals are read by others.
std::string config_line(const CLI::App& command, const std::string& prefix, const std::string& name,
                        std::string value) {
  const CLI::Option* option = command.get_option_no_throw("--" + name);
  if (option == nullptr) option = command.get_option_no_throw(name);  // positional
  const bool given = option == nullptr || option->count() > 0;
  const bool flag = option != nullptr && option->get_expected_max() == 0;
  if (name == "api-key" && given) return "# " + prefix + name + " is set";
  if (!given && (flag || value == "\"\"")) return "# " + prefix + name + " is not set";
  if (!given && value.rfind("\"[", 0) == 0) value = value.substr(1, value.size() - 2);  // the default of a list
  return prefix + name + "=" + value;
}

// A file for --config that brings the same options to the same sub-command.
std::string effective_config(const CLI::App& app) {
  const CLI::App* command = &app;
  std::string prefix, text = "# rose " ROSE_VERSION "\n";
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    prefix += command->get_name() + ".";
  }
  std::istringstream lines(CLI::ConfigTOML().to_config(command, true, false, ""));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos || line.find('.') < equals) continue;  // an option of a sub-command of it
    text += config_line(*command, prefix, line.substr(0, equals), line.substr(equals + 1)) + "\n";
  }
  return text;
}

std::vector<std::string> known_words(const CLI::App& app) {
  std::vector<std::string> words;
  const auto parsed = app.get_subcommands();
  if (parsed.empty()) {
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
      words.push_back(command->get_name());
    }
    return words;
  }
  for (const CLI::Option* option : parsed[0]->get_options()) {
    for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
  }
  return words;
}

int usage_error(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& words) {
  std::fprintf(stderr, "rose: %s\n", error.what());
  const std::vector<std::string> known = known_words(app);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string word = words[i].substr(0, words[i].find('='));
    const bool option = word.rfind("--", 0) == 0;
    if ((!option && i > 0) || std::find(known.begin(), known.end(), word) != known.end()) continue;
    if (const std::string nearest = rose::nearest_word(word, known); !nearest.empty()) {
      std::fprintf(stderr, "did you mean %s?\n", nearest.c_str());
    }
  }
  const auto parsed = app.get_subcommands();
  std::fprintf(stderr, "see: rose %s--help\n", parsed.empty() ? "" : (parsed[0]->get_name() + " ").c_str());
  return rose::kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
  // The log is never part of a command's output; only serve, which runs unwatched, tells more than warnings.
  spdlog::set_default_logger(spdlog::stderr_color_mt("log"));
  spdlog::set_level(spdlog::level::warn);
  CLI::App app{"rose serves OpenAI's open-weight gpt-oss models behind an OpenAI-compatible API.", "rose"};
  app.set_version_flag("--version", "rose " ROSE_VERSION);
  app.require_subcommand(1);
  app.fallthrough();  // --config may stand behind the sub-command
  app.footer(
      "Every option of a sub-command can also be set by the environment: --max-context is ROSE_MAX_CONTEXT.\n"
      "Exit codes: 0 done or drained, 1 failed while running, 2 usage, 3 does not fit, 4 bad model files, 5 port "
      "taken,\n6 a step did not end (--watchdog-timeout).");
  rose::register_serve(app);
  rose::register_chat(app);
  rose::register_generate(app);
  rose::register_convert(app);
  rose::register_bench(app);
  for (CLI::App* command : app.get_subcommands({})) command->get_formatter()->column_width(34);
  name_environment(app);
  app.set_config("--config", "", "read options from this TOML file, in a section for each sub-command");
  bool print_config = false;
  app.add_flag("--print-config", print_config, "print the options that would be used, as a file for --config, and exit")
      ->configurable(false);
  app.parse_complete_callback([&] {
    if (!print_config) return;
    std::fputs(effective_config(app).c_str(), stdout);
    throw CLI::Success();
  });
  const rose::Arguments arguments = rose::normalized(std::vector<std::string>(argv + 1, argv + argc));
  for (const std::string& flag : arguments.ignored) {
    std::fprintf(stderr, "rose: %s has no meaning here and is ignored\n", flag.c_str());
  }
  try {
    app.parse(
        std::vector<std::string>(arguments.words.rbegin(), arguments.words.rend()));  // CLI11 takes them last first
    return 0;
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForVersion& version) {
    return app.exit(version);
  } catch (const CLI::Success&) {  // --print-config
    return 0;
  } catch (const CLI::RuntimeError& done) {  // a command's own exit code
    return done.get_exit_code();
  } catch (const CLI::ParseError& error) {
    return usage_error(app, error, arguments.words);
  } catch (const rose::StartError& error) {
    std::fprintf(stderr, "rose: %s\n", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rose: %s\n", error.what());
    return 1;
  }
}
