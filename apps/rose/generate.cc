#include "generate.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <iterator>
#include <string>

#include "ask.h"
#include "load.h"
#include "tokenizer/utf8.h"

namespace rose {
namespace {

struct GenerateOptions {
  LoadOptions load;
  DecodingOptions decoding;
  std::string prompt;
  std::vector<TokenId> ids;
  std::uint64_t seed = 0;
  bool seeded = false;
  bool specials = false;
  bool print_ids = false;
};

std::vector<TokenId> prompt_ids(const GenerateOptions& options, const Tokenizer& tokenizer) {
  if (!options.ids.empty()) return options.ids;
  std::string text = options.prompt;
  if (text == "-") text.assign(std::istreambuf_iterator<char>(std::cin), {});
  return options.specials ? tokenizer.encode_with_specials(text) : tokenizer.encode(text);
}

// Prints tokens as they come: ids, or text with only whole characters.
int print_completion(EventQueue& sink, const Tokenizer& tokenizer, bool print_ids) {
  Utf8Stream utf8;
  std::string text;
  for (;;) {
    for (const TokenEvent& event : sink.take(0.1)) {
      if (event.token >= 0 && print_ids) std::cout << event.token << " ";
      if (event.token >= 0 && !print_ids) utf8.feed(tokenizer.decode(event.token), text);
      if (event.finish) utf8.flush(text);
      std::cout << text << std::flush;
      text.clear();
      if (event.finish == FinishReason::kFailed) std::cerr << "\nrose: " << event.error << "\n";
      if (event.finish) {
        std::cout << "\n";
        return event.finish == FinishReason::kFailed ? 1 : 0;
      }
    }
  }
}

int run_generate(GenerateOptions options) {
  const LoadedModel model = load(options.load, terminal_progress("loading"));
  Request request{.id = 1, .prompt = prompt_ids(options, *model.tokenizer), .decoding = options.decoding};
  if (request.prompt.empty())
    throw StartError("the prompt is empty: give --prompt TEXT, --prompt - or --ids", kExitUsage);
  const int room = model.engine->limits().context_max - static_cast<int>(request.prompt.size());
  if (room < 1) {
    throw StartError(fmt::format("the prompt has {} tokens, the context holds {}", request.prompt.size(),
                                 model.engine->limits().context_max),
                     kExitUsage);
  }
  request.decoding.max_tokens = std::min(request.decoding.max_tokens, room);
  request.decoding.stop_tokens = model.chat_format->stop_tokens();
  if (options.seeded) request.decoding.seed = options.seed;
  const auto sink = std::make_shared<EventQueue>();
  request.sink = sink;
  if (const Result<Ok> accepted = model.engine->submit(std::move(request)); !accepted) {
    throw StartError(accepted.error().message, kExitUsage);
  }
  const int code = print_completion(*sink, *model.tokenizer, options.print_ids);
  model.engine->stop(Clock::now());
  return code;
}

}  // namespace

void register_generate(CLI::App& app) {
  auto options = std::make_shared<GenerateOptions>();
  options->decoding.max_tokens = 256;
  CLI::App* command = app.add_subcommand("generate", "complete one prompt, without a chat format; for scripts");
  add_load_options(*command, options->load);
  auto* prompt = command->add_option("-p,--prompt", options->prompt, "the text to go on from; - reads standard input");
  command->add_option("--ids", options->ids, "the prompt as token ids, separated by commas")
      ->delimiter(',')
      ->excludes(prompt);
  command->add_flag("--specials", options->specials, "read <|start|> and its like in the prompt as special tokens");
  command->add_flag("--print-ids", options->print_ids, "print token ids instead of text");
  command->add_option("-n,--max-tokens", options->decoding.max_tokens, "tokens to generate at most")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--temperature", options->decoding.temperature, "0: always the most likely token")
      ->check(CLI::Range(0.0, 2.0))
      ->capture_default_str();
  command->add_option("--top-p", options->decoding.top_p)->check(CLI::Range(0.0, 1.0))->capture_default_str();
  command->add_option("--top-k", options->decoding.top_k, "0: all")->check(CLI::NonNegativeNumber);
  auto* seed = command->add_option("--seed", options->seed, "equal seeds give equal tokens");
  command->add_flag("--ignore-stop", options->decoding.ignore_stop, "go on after a stop token");
  command->callback([options, seed] {
    options->seeded = seed->count() > 0;
    if (const int code = run_generate(*options); code != 0) throw CLI::RuntimeError(code);
  });
}

}  // namespace rose
