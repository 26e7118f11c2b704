#include "weights/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/result.h"
#include "weights/original_config.h"

namespace rose {
namespace {

constexpr std::size_t kConfigBytesMax = 1u << 20;
constexpr std::size_t kIndexBytesMax = 64u << 20;
constexpr std::size_t kTokenizerBytesMax = 128u << 20;
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kSingleName = "model.safetensors";

json::Value read_json(const std::string& path, std::size_t bytes_max) {
  const std::string text = read_small_file(path, bytes_max);
  Result<json::Value> value = json::parse(text, {.bytes_max = bytes_max, .depth_max = 32});
  if (!value) throw StartError(fmt::format("{}: {}", path, value.error().message));
  if (!value->is_object()) throw StartError(fmt::format("{}: not a JSON object", path));
  return std::move(value).value();
}

class SafetensorsBytes : public StoredBytes {
 public:
  SafetensorsBytes(std::shared_ptr<const File> file, const SafetensorsTensor& tensor)
      : file_(std::move(file)), tensor_(tensor.name), offset_(tensor.offset), size_(tensor.bytes) {}

  std::string name() const override { return fmt::format("{}: tensor {}", file_->path(), tensor_); }
  std::uint64_t size() const override { return size_; }
  void read(std::uint64_t offset, std::size_t bytes, void* to) const override {
    CHECK(offset <= size_ && bytes <= size_ - offset, "{} + {} of {} in {}", offset, bytes, size_, name());
    file_->read(offset_ + offset, bytes, to);
  }

 private:
  std::shared_ptr<const File> file_;
  std::string tensor_;
  std::uint64_t offset_;
  std::uint64_t size_;
};

// A shard lies beside the index: no folder, no way out of one.
bool plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name.front() != '.' && name.ends_with(".safetensors") &&
         name.find('/') == std::string_view::npos && name.find('\\') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

std::string listed(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  const std::size_t count = names.size();
  if (count > 12) names.resize(12);
  return names.empty() ? "nothing" : fmt::format("{}{}", fmt::join(names, ", "), count > 12 ? ", ..." : "");
}

std::vector<std::string> safetensors_files(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (plain_name(name)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

CheckpointFolder::CheckpointFolder(std::string folder, const SourceOptions& options)
    : StoredSource(options), folder_(std::move(folder)), generation_config_(json::Object{}) {
  while (folder_.size() > 1 && folder_.back() == '/') folder_.pop_back();
  read_configs();
  open_shards();
  check_formats();
}

void CheckpointFolder::read_configs() {
  const std::string config_path = folder_ + "/config.json";
  if (!file_exists(config_path)) {
    throw StartError(fmt::format("{} has no config.json; found: {}", folder_, listed(folder_)));
  }
  config_ = read_json(config_path, kConfigBytesMax);
  std::string side_folder = folder_;  // where the files lie that the original layout shares
  if (is_original_config(config_.get_object())) {
    layout_ = CheckpointLayout::kOriginal;
    config_ = published_config(config_.get_object(), config_path);
    side_folder = folder_ + "/..";
  }
  for (const std::string& folder : {folder_, side_folder}) {
    const std::string generation_path = folder + "/generation_config.json";
    if (generation_config_.get_object().empty() && file_exists(generation_path)) {
      generation_config_ = read_json(generation_path, kConfigBytesMax);
    }
    const std::string tokenizer_path = folder + "/tokenizer.json";
    if (tokenizer_json_.empty() && file_exists(tokenizer_path)) {
      tokenizer_json_ = read_small_file(tokenizer_path, kTokenizerBytesMax);
    }
  }
  const json::Value* model_type = config_.get_object().if_contains("model_type");
  if (model_type != nullptr && model_type->is_string() && model_type->get_string() == "gpt_oss") {
    chat_format_ = "harmony";
  }
}

std::vector<std::string> CheckpointFolder::shard_names(const json::Value* index) const {
  if (index != nullptr) {
    const std::string path = fmt::format("{}/{}", folder_, kIndexName);
    const json::Value* map = index->get_object().if_contains("weight_map");
    if (map == nullptr || !map->is_object()) throw StartError(fmt::format("{}: has no weight_map", path));
    std::set<std::string> names;
    for (const auto& [tensor, shard] : map->get_object()) {
      const boost::json::string* name = shard.if_string();
      if (name == nullptr || !plain_name({name->data(), name->size()})) {
        throw StartError(
            fmt::format("{}: weight_map gives tensor \"{}\" the file {}, which is not the plain name of a "
                        ".safetensors file",
                        path, std::string_view(tensor.data(), tensor.size()), json::serialize(shard).substr(0, 120)));
      }
      names.emplace(name->data(), name->size());
    }
    return {names.begin(), names.end()};
  }
  if (file_exists(fmt::format("{}/{}", folder_, kSingleName))) return {kSingleName};
  const std::vector<std::string> found = safetensors_files(folder_);
  if (found.empty()) {
    throw StartError(fmt::format("{} has no {} and no {}; found: {}. Only safetensors are read", folder_, kIndexName,
                                 kSingleName, listed(folder_)));
  }
  // The original layout's own loader takes every shard of the folder; the published layout always has an index.
  if (layout_ == CheckpointLayout::kPublished) {
    throw StartError(fmt::format("{} has {} safetensors files ({}, ...) and no {} to say which belong together",
                                 folder_, found.size(), found.front(), kIndexName));
  }
  return found;
}

void CheckpointFolder::open_shards() {
  const std::string index_path = fmt::format("{}/{}", folder_, kIndexName);
  const bool indexed = file_exists(index_path);
  const json::Value index = indexed ? read_json(index_path, kIndexBytesMax) : json::Value();
  const std::vector<std::string> names = shard_names(indexed ? &index : nullptr);
  const json::Object* weight_map = indexed ? &index.at("weight_map").get_object() : nullptr;
  for (const std::string& name : names) open_shard(name, weight_map);
  if (weight_map == nullptr) return;
  for (const auto& [tensor, shard] : *weight_map) {
    const std::string name(tensor.data(), tensor.size());
    if (!tensors_.contains(name)) {
      throw StartError(fmt::format("{}: tensor {} should be in {}, which does not have it", index_path, name,
                                   std::string_view(shard.get_string())));
    }
  }
}

void CheckpointFolder::open_shard(const std::string& name, const json::Object* weight_map) {
  const std::string path = fmt::format("{}/{}", folder_, name);
  if (!file_exists(path)) {
    throw StartError(fmt::format("{}: no such file{}", path, weight_map == nullptr ? "" : ", but the index names it"));
  }
  const auto file = std::make_shared<const File>(path);
  const ReadBytes read = [&](std::uint64_t offset, std::size_t bytes, void* to) { file->read(offset, bytes, to); };
  for (SafetensorsTensor& tensor : parse_safetensors(path, file->size(), read)) {
    const std::string tensor_name = tensor.name;
    const auto [place, added] = tensors_.try_emplace(tensor_name, Entry{file, std::move(tensor)});
    if (!added) {
      throw StartError(fmt::format("{}: tensor {} is in {} as well", path, tensor_name, place->second.file->path()));
    }
    if (weight_map == nullptr) continue;
    const json::Value* mapped = weight_map->if_contains(tensor_name);
    if (mapped == nullptr || mapped->get_string() != name) {
      throw StartError(fmt::format("{}: holds tensor {}, which the index {}", path, tensor_name,
                                   mapped == nullptr
                                       ? std::string("does not list")
                                       : fmt::format("places in {}", std::string_view(mapped->get_string()))));
    }
  }
}

// Experts as the tensors have them, and as the config says.
void CheckpointFolder::check_formats() {
  const auto has_suffix = [&](std::string_view suffix) {
    return std::any_of(tensors_.begin(), tensors_.end(),
                       [&](const auto& entry) { return std::string_view(entry.first).ends_with(suffix); });
  };
  const bool blocks = has_suffix("_blocks") || has_suffix(".blocks");
  expert_format_ = blocks ? WeightFormat::kMxfp4 : WeightFormat::kBf16;
  const json::Value* quantization = config_.get_object().if_contains("quantization_config");
  if (quantization == nullptr || quantization->is_null()) return;
  const json::Value* method =
      quantization->is_object() ? quantization->get_object().if_contains("quant_method") : nullptr;
  if (method == nullptr || !method->is_string() || method->get_string() != "mxfp4") {
    throw StartError(
        fmt::format("{}/config.json: quantization_config has quant_method {}; only \"mxfp4\", or none for "
                    "bf16 experts, is read",
                    folder_, method == nullptr ? "missing" : json::serialize(*method)));
  }
  if (!blocks) {
    throw StartError(
        fmt::format("{}/config.json: quantization_config says mxfp4, but no tensor is named ..._blocks", folder_));
  }
}

std::string CheckpointFolder::describe() const {
  return fmt::format("checkpoint {} ({} experts)", folder_, weight_format_name(expert_format_));
}

const CheckpointFolder::Entry* CheckpointFolder::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

StoredRange CheckpointFolder::bytes_of(const std::string& name, std::string_view dtype,
                                       const std::vector<std::int64_t>& shape) const {
  const Entry* entry = find(name);
  if (entry == nullptr) throw StartError(fmt::format("{}: tensor {} is missing", folder_, name));
  if (entry->tensor.dtype != dtype || entry->tensor.shape != shape) {
    throw StartError(fmt::format("{}: tensor {} is {}, expected {} [{}]", entry->file->path(), name,
                                 entry->tensor.describe(), dtype, fmt::join(shape, ", ")));
  }
  return {std::make_shared<SafetensorsBytes>(entry->file, entry->tensor), 0};
}

StoredPart CheckpointFolder::locate_part(const WeightSpec& spec, const SourcePart& part) const {
  StoredPart located;
  if (spec.kind == WeightKind::kVector) {
    // Norms are named ...weight, sinks carry no suffix.
    const std::string suffixed = part.tensor + ".weight";
    located.payload = bytes_of(find(suffixed) != nullptr ? suffixed : part.tensor, "BF16", {part.rows});
    return located;
  }
  located.payload = bytes_of(part.tensor + ".weight", "BF16", {part.rows, spec.in});
  if (spec.bias) located.bias = bytes_of(part.tensor + ".bias", "BF16", {part.rows});
  return located;
}

StoredPart CheckpointFolder::locate_original(const WeightSpec& spec, const SourcePart& part) const {
  const std::optional<OriginalName> name = original_name(part.tensor);
  if (!name) throw StartError(fmt::format("{}: the original layout has no name for {}", folder_, part.tensor));
  std::int64_t rows = part.rows;  // of the stored tensor
  std::int64_t first = 0;
  if (name->fused >= 0) {
    CHECK(spec.parts.size() == 3 && &part == &spec.parts[static_cast<std::size_t>(name->fused)],
          "{}: the fused tensor is q, k, v in this order", spec.name);
    rows = 0;
    for (const SourcePart& other : spec.parts) {
      if (&other == &part) first = rows;
      rows += other.rows;
    }
  }
  StoredPart located;
  const bool vector = spec.kind == WeightKind::kVector;
  located.payload = bytes_of(name->weight, "BF16", vector ? std::vector{rows} : std::vector{rows, spec.in});
  located.payload.offset = static_cast<std::uint64_t>(first * spec.in) * sizeof(Bf16);
  if (spec.bias) {
    located.bias = bytes_of(name->bias, "BF16", {rows});
    located.bias.offset = static_cast<std::uint64_t>(first) * sizeof(Bf16);
  }
  return located;
}

void CheckpointFolder::locate_experts(const WeightSpec& spec, StoredWeight& stored) const {
  CHECK(spec.parts.size() == 1, "{}: experts are one tensor", spec.name);
  std::string base = spec.parts.front().tensor;
  std::string bias = base + "_bias";
  std::string suffix = "_";
  if (layout_ == CheckpointLayout::kOriginal) {
    const std::optional<OriginalName> name = original_name(base);
    if (!name) throw StartError(fmt::format("{}: the original layout has no name for {}", folder_, base));
    base = name->weight;
    bias = name->bias;
    suffix = ".";
  }
  const std::string blocks = base + suffix + "blocks";
  StoredPart part;
  if (find(blocks) != nullptr && find(base) != nullptr) {
    throw StartError(fmt::format("{}: has both {} and {}: which one counts?", folder_, blocks, base));
  }
  if (find(base) != nullptr) {
    stored.format = WeightFormat::kBf16;
    stored.transposed = true;
    part.payload = bytes_of(base, "BF16", {spec.experts, spec.in, spec.out});
  } else {
    if (spec.in % kMxfp4Group != 0) {
      throw StartError(fmt::format("{}: {} has rows of {}, not whole groups of 32", folder_, blocks, spec.in));
    }
    const std::int64_t groups = spec.in / kMxfp4Group;
    stored.format = WeightFormat::kMxfp4;
    part.payload = bytes_of(blocks, "U8", {spec.experts, spec.out, groups, kMxfp4Group / 2});
    part.scales = bytes_of(base + suffix + "scales", "U8", {spec.experts, spec.out, groups});
  }
  if (spec.bias) part.bias = bytes_of(bias, "BF16", {spec.experts, spec.out});
  stored.parts.push_back(std::move(part));
}

StoredWeight CheckpointFolder::locate(const WeightSpec& spec) const {
  StoredWeight stored;
  if (spec.kind == WeightKind::kExperts) {
    locate_experts(spec, stored);
    return stored;
  }
  for (const SourcePart& part : spec.parts) {
    stored.parts.push_back(layout_ == CheckpointLayout::kOriginal ? locate_original(spec, part)
                                                                  : locate_part(spec, part));
  }
  return stored;
}

}  // namespace rose
