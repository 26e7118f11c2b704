// Random checkpoints from a seed and a recipe, bit for bit those of tools/oracle/generated.py: test weights are never
// stored. For tests only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "json/json.h"
#include "tensor/dtype.h"

namespace rose::testing {

inline std::string_view text_of(const json::Value& value) {
  return {value.as_string().data(), value.as_string().size()};
}

inline json::Value read_json_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  CHECK(file.good(), "{}: no such file", path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  Result<json::Value> value = json::parse(text);
  CHECK(value.ok(), "{}: {}", path, value.error().message);
  return std::move(value).value();
}

// FNV-1a over the name, so that a tensor does not change when another one is added.
inline std::uint64_t tensor_seed(std::uint64_t seed, std::string_view name) {
  std::uint64_t value = 0xcbf29ce484222325ull;
  for (const char c : name) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return value ^ seed;
}

inline std::vector<std::uint8_t> random_bytes(std::uint64_t seed, std::size_t count) {
  std::vector<std::uint8_t> bytes((count + 7) / 8 * 8);
  for (std::size_t i = 0; i < bytes.size() / 8; ++i) {
    const std::uint64_t word = random_bits(seed, i);
    std::memcpy(&bytes[i * 8], &word, 8);
  }
  bytes.resize(count);
  return bytes;
}

// Four 16-bit numbers summed and centred: near enough to a normal, and exact in integers.
inline double random_normal(std::uint64_t seed, std::size_t counter) {
  const std::uint64_t word = random_bits(seed, counter);
  const auto total =
      static_cast<std::int64_t>((word & 0xffff) + ((word >> 16) & 0xffff) + ((word >> 32) & 0xffff) + (word >> 48));
  return static_cast<double>(total - 131070);
}

// The bytes of one entry of a recipe.
inline std::vector<std::uint8_t> make_tensor(std::uint64_t seed, const json::Object& entry) {
  std::size_t count = 1;
  for (const json::Value& size : entry.at("shape").as_array()) count *= size.to_number<std::size_t>();
  const std::uint64_t own_seed = tensor_seed(seed, text_of(entry.at("name")));
  const json::Object& fill = entry.at("fill").as_object();
  const bool bf16 = text_of(entry.at("dtype")) == "BF16";
  const auto put_bf16 = [](std::vector<std::uint8_t>& bytes, std::size_t at, double value) {
    const Bf16 rounded = to_bf16(static_cast<float>(value));
    std::memcpy(&bytes[at * 2], &rounded, 2);
  };

  std::vector<std::uint8_t> bytes;
  if (bf16) {
    const double step = fill.at("std").to_number<double>() / 37837.0;
    const double mean = fill.at("mean").to_number<double>();
    bytes.resize(count * 2);
    for (std::size_t i = 0; i < count; ++i) put_bf16(bytes, i, random_normal(own_seed, i) * step + mean);
  } else {
    bytes = random_bytes(own_seed, count);
    if (fill.contains("least")) {
      const int least = fill.at("least").to_number<int>();
      const int span = fill.at("most").to_number<int>() - least + 1;
      for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(least + byte % span);
    }
  }
  if (!entry.contains("patches")) return bytes;
  for (const json::Value& patch : entry.at("patches").as_array()) {
    const auto at = patch.at("at").to_number<std::size_t>();
    const auto end = at + patch.at("count").to_number<std::size_t>();
    CHECK(end <= count, "a patch up to {} of {}", end, count);
    const auto value = patch.at("value").to_number<double>();
    for (std::size_t i = at; i < end; ++i) {
      if (bf16) put_bf16(bytes, i, value);
      if (!bf16) bytes[i] = static_cast<std::uint8_t>(value);
    }
  }
  return bytes;
}

// Of the bytes as little-endian 64-bit words, zero-padded, each mixed with its index.
inline std::string checksum(std::vector<std::uint8_t> bytes) {
  bytes.resize((bytes.size() + 7) / 8 * 8);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < bytes.size() / 8; ++i) {
    std::uint64_t word;
    std::memcpy(&word, &bytes[i * 8], 8);
    sum += mix64(word ^ (i * 0x9e3779b97f4a7c15ull));
  }
  return fmt::format("{:016x}", sum);
}

// Ids of a golden run.
inline std::vector<std::int32_t> random_tokens(std::uint64_t seed, std::size_t count, std::uint64_t vocabulary) {
  std::vector<std::int32_t> ids(count);
  for (std::size_t i = 0; i < count; ++i) ids[i] = static_cast<std::int32_t>(random_bits(seed, i) % vocabulary);
  return ids;
}

// Writes config.json and model.safetensors into `folder`, made anew. Aborts when a tensor is not the one whose checksum
// the recipe carries: then the two generators differ, and no comparison of logits would mean anything.
inline void write_checkpoint(const std::string& folder, const json::Value& config, std::uint64_t seed,
                             const json::Array& tensors) {
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/config.json") << json::serialize(config);

  json::Object header;
  std::uint64_t offset = 0;
  for (const json::Value& entry : tensors) {
    std::uint64_t size = text_of(entry.at("dtype")) == "BF16" ? 2 : 1;
    for (const json::Value& extent : entry.at("shape").as_array()) size *= extent.to_number<std::uint64_t>();
    header[text_of(entry.at("name"))] = json::Object{
        {"dtype", entry.at("dtype")}, {"shape", entry.at("shape")}, {"data_offsets", {offset, offset + size}}};
    offset += size;
  }
  std::string text = json::serialize(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();

  std::ofstream file(folder + "/model.safetensors", std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), 8);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  for (const json::Value& entry : tensors) {
    const std::vector<std::uint8_t> bytes = make_tensor(seed, entry.as_object());
    const json::Value* sum = entry.as_object().if_contains("checksum");
    CHECK(sum == nullptr || text_of(*sum) == checksum(bytes), "{} is not what tools/oracle/generated.py makes",
          text_of(entry.at("name")));
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  file.close();
  CHECK(file.good(), "{}: not written", folder);
}

}  // namespace rose::testing
