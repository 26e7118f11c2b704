// Writes a rose file (rose_file.h) from any source. The file appears under its name whole, synced to disk, or not at
// all.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "weights/stored.h"

namespace rose {

struct ConvertOptions {
  WeightFormat experts = WeightFormat::kMxfp4;
  bool allow_inexact = false;  // write FP8 tiles that had to be rounded
  bool replace = false;        // an existing file of that name
  int threads = 1;
};

struct ConvertReport {
  struct PerFormat {
    std::int64_t tensors = 0;
    std::uint64_t bytes = 0;  // payload and scales
  };
  std::array<PerFormat, 3> formats;  // by WeightFormat
  std::uint64_t bias_bytes = 0;
  std::uint64_t tokenizer_bytes = 0;
  std::uint64_t file_bytes = 0;
  TileReport tiles;
};

inline constexpr int kExitInterrupted = 130;  // exit code, as shells report SIGINT

// The name under which `path` is written until it is whole. Held locked by the writer; one that is not locked is what a
// killed conversion left, and is overwritten.
std::string partial_name(const std::string& path);

// made_by goes into the header ("rose 0.1.0"). cancelled() is asked between pieces of work: true ends the conversion
// and removes the partial file. Throws StartError: destination exists, another writer, too little disk, tiles that are
// not exact (all of them counted first), or what the source throws.
ConvertReport write_rose_file(const StoredSource& source, const std::vector<WeightSpec>& specs, const std::string& path,
                              const std::string& made_by, const ConvertOptions& options, const Progress& progress,
                              const std::function<bool()>& cancelled);

}  // namespace rose
