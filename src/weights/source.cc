#include "weights/source.h"

#include <algorithm>
#include <filesystem>
#include <thread>

#include "base/result.h"
#include "weights/checkpoint.h"
#include "weights/rose_file.h"

namespace rose {

std::unique_ptr<StoredSource> open_stored(const std::string& path, const SourceOptions& options) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) throw StartError(fmt::format("{}: no such file or directory", path));
  if (std::filesystem::is_directory(status)) return std::make_unique<CheckpointFolder>(path, options);
  if (is_rose_file(path)) return std::make_unique<RoseFile>(path, options);
  std::string hint;
  if (path.ends_with(".partial")) hint = ": an unfinished conversion, safe to delete";
  if (path.ends_with(".safetensors") || path.ends_with(".json")) hint = ": name the folder it lies in";
  throw StartError(fmt::format("{} is neither a checkpoint folder nor a rose file{}", path, hint));
}

std::unique_ptr<WeightSource> open_weights(const std::string& path) {
  // Enough reads in flight for a fast disk; more threads than this only take turns on memory.
  constexpr int kThreadsMax = 16;
  const int threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kThreadsMax);
  return open_stored(path, {.threads = threads});
}

}  // namespace rose
