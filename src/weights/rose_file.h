// The rose file: one model in one file, in compute layout.
//
//   0   "ROSEFILE"                        32  header: JSON, header_bytes long, filled up with spaces
//   8   u32 layout version                    {"layout", "made_by", "config", "generation_config", "chat_format",
//   12  u32 0                                  "expert_format", "exact_fp8", "tokenizer": extent, "tensors": [...]}
//   16  u64 header_bytes                  then the tokenizer's bytes and each weight's payload, scales and bias, every
//   one 24  u64 XXH3-64 of the header         at a multiple of 4096; the file ends where the last of them ends
//
// A tensor entry: {"name", "format", "experts", "out", "in", "payload": extent, "scales": extent, "bias": extent};
// shapes and orders are those of Weight, q, k and v joined by rows. An extent: {"offset", "bytes", "xxh3": 16 hex
// digits for each 4 MiB}. Little-endian. The header's checksum is verified when the file is opened, an extent's when it
// is first read.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "weights/file.h"
#include "weights/stored.h"

namespace rose {

inline constexpr std::string_view kRoseMagic = "ROSEFILE";
inline constexpr std::uint32_t kRoseVersion = 1;
inline constexpr std::string_view kRoseLayout =
    "rows-1";  // named in the header: the layout kernels of this version read
inline constexpr std::size_t kRosePrefixBytes = 32;
inline constexpr std::uint64_t kRoseAlignment = 4096;
inline constexpr std::uint64_t kRoseChunkBytes = 4u << 20;
inline constexpr std::uint64_t kRoseHeaderBytesMax = 64u << 20;

bool is_rose_file(const std::string& path);  // begins with the magic

class RoseFile : public StoredSource {
 public:
  RoseFile(const std::string& path, const SourceOptions& options);

  const json::Value& config() const override { return config_; }
  const json::Value& generation_config() const override { return generation_config_; }
  std::string_view tokenizer_json() const override { return tokenizer_json_; }
  std::string_view chat_format() const override { return chat_format_; }
  std::string describe() const override;
  WeightFormat expert_format() const override { return expert_format_; }

  StoredWeight locate(const WeightSpec& spec) const override;

 private:
  class Extent;
  struct Entry {
    WeightFormat format = WeightFormat::kBf16;
    std::int64_t experts = 0;
    std::int64_t out = 0;
    std::int64_t in = 0;
    std::shared_ptr<const Extent> payload;
    std::shared_ptr<const Extent> scales;  // null: none
    std::shared_ptr<const Extent> bias;
  };

  json::Value read_header();
  void read_tensors(const json::Object& header);
  Entry read_entry(const json::Object& object, const std::string& name);
  std::shared_ptr<const Extent> read_extent(const json::Value* value, const std::string& name, std::uint64_t bytes);
  void check_tiling() const;

  std::string path_;
  std::shared_ptr<const File> file_;
  std::shared_ptr<const Mapping> mapping_;
  std::uint64_t data_begin_ = 0;
  json::Value config_;
  json::Value generation_config_;
  std::string chat_format_;
  std::string_view tokenizer_json_;
  WeightFormat expert_format_ = WeightFormat::kMxfp4;
  bool exact_fp8_ = true;
  std::unordered_map<std::string, Entry> tensors_;
  std::vector<std::shared_ptr<const Extent>> extents_;
};

}  // namespace rose
