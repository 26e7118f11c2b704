// A published checkpoint folder: config.json, tokenizer.json and safetensors shards, in either published layout.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "weights/file.h"
#include "weights/names.h"
#include "weights/safetensors.h"
#include "weights/stored.h"

namespace rose {

// Reads only what it names: config.json, generation_config.json, tokenizer.json, model.safetensors.index.json and the
// shards, all directly in the folder (subfolders hold further copies of the same weights). Experts may be mxfp4 (names
// with _blocks and _scales) or bf16 (no suffix; stored [experts, in, out], transposed to everything else). The original
// layout's config is given in published keys, its q, k, v as the parts they are.
class CheckpointFolder : public StoredSource {
 public:
  CheckpointFolder(std::string folder, const SourceOptions& options);

  const json::Value& config() const override { return config_; }
  const json::Value& generation_config() const override { return generation_config_; }
  std::string_view tokenizer_json() const override { return tokenizer_json_; }  // empty when there is none
  std::string_view chat_format() const override { return chat_format_; }
  std::string describe() const override;
  WeightFormat expert_format() const override { return expert_format_; }

  StoredWeight locate(const WeightSpec& spec) const override;

 private:
  struct Entry {
    std::shared_ptr<const File> file;
    SafetensorsTensor tensor;
  };

  void read_configs();
  void open_shards();
  std::vector<std::string> shard_names(const json::Value* index) const;
  void open_shard(const std::string& name, const json::Object* weight_map);
  void check_formats();
  const Entry* find(const std::string& name) const;
  StoredRange bytes_of(const std::string& name, std::string_view dtype, const std::vector<std::int64_t>& shape) const;
  StoredPart locate_part(const WeightSpec& spec, const SourcePart& part) const;
  StoredPart locate_original(const WeightSpec& spec, const SourcePart& part) const;
  void locate_experts(const WeightSpec& spec, StoredWeight& stored) const;

  std::string folder_;
  CheckpointLayout layout_ = CheckpointLayout::kPublished;
  json::Value config_;
  json::Value generation_config_;
  std::string tokenizer_json_;
  std::string chat_format_;
  WeightFormat expert_format_ = WeightFormat::kMxfp4;
  std::unordered_map<std::string, Entry> tensors_;
};

}  // namespace rose
