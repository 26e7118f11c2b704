#include "default_model.h"

#include <filesystem>
#include <vector>

#include "base/result.h"

namespace rose {

std::string embedded_model_path(const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path binary = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  const std::vector<fs::path> places = {binary / "models" / name, binary.parent_path() / "share/rose/models" / name,
                                        fs::path(ROSE_SOURCE_DIR) / "models" / name};
  std::string looked_at;
  for (const fs::path& place : places) {
    if (fs::exists(place / "config.json", ignored)) return place.string();
    looked_at += fmt::format("\n  {}", place.string());
  }
  throw StartError(fmt::format(
      "the embedded model {} was not found; give a checkpoint folder or a rose file. Looked at:{}", name, looked_at));
}

}  // namespace rose
