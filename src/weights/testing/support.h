// Reading back what was loaded, for tests: a weight as doubles, and the same from the tensors it was written from.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "weights/format.h"
#include "weights/spec.h"
#include "weights/testing/checkpoint.h"

namespace rose::synthetic {

// [experts or 1, out, in] of the whole weight, computed from the published tensors with doubles.
inline std::vector<double> expected_values(const TensorMap& tensors, const WeightSpec& spec) {
  static constexpr double kMagnitudes[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  std::vector<double> values;
  const auto bf16_at = [](const TensorBytes& tensor, std::size_t i) {
    const auto bits = static_cast<std::uint16_t>(tensor.bytes[2 * i] | tensor.bytes[2 * i + 1] << 8);
    return static_cast<double>(to_float(Bf16{bits}));
  };
  if (spec.kind != WeightKind::kExperts) {
    for (const SourcePart& part : spec.parts) {
      const bool suffixed = tensors.contains(part.tensor + ".weight");
      const TensorBytes& tensor = tensors.at(suffixed ? part.tensor + ".weight" : part.tensor);
      for (std::size_t i = 0; i < tensor.bytes.size() / 2; ++i) values.push_back(bf16_at(tensor, i));
    }
    return values;
  }
  const TensorBytes& blocks = tensors.at(spec.parts[0].tensor + "_blocks");
  const TensorBytes& scales = tensors.at(spec.parts[0].tensor + "_scales");
  for (std::size_t i = 0; i < 2 * blocks.bytes.size(); ++i) {
    const int code = i % 2 == 0 ? blocks.bytes[i / 2] & 15 : blocks.bytes[i / 2] >> 4;
    const double magnitude = std::ldexp(kMagnitudes[code & 7], scales.bytes[i / 32] - 127);
    values.push_back(code >= 8 ? -magnitude : magnitude);
  }
  return values;
}

inline std::vector<double> expected_bias(const TensorMap& tensors, const WeightSpec& spec) {
  std::vector<double> values;
  for (const SourcePart& part : spec.parts) {
    const std::string name = part.tensor + (spec.kind == WeightKind::kExperts ? "_bias" : ".bias");
    const TensorBytes& tensor = tensors.at(name);
    for (std::size_t i = 0; i < tensor.bytes.size() / 2; ++i) {
      const auto bits = static_cast<std::uint16_t>(tensor.bytes[2 * i] | tensor.bytes[2 * i + 1] << 8);
      values.push_back(static_cast<double>(to_float(Bf16{bits})));
    }
  }
  return values;
}

// The elements of `whole` [experts or 1, out, in] that the slice takes.
inline std::vector<double> sliced(const std::vector<double>& whole, const WeightSpec& spec, const WeightSlice& slice,
                                  std::int64_t in) {
  std::vector<double> values;
  const std::int64_t e_end = spec.experts == 0 ? 1 : slice.experts.end;
  const ShardRange columns = in == 1 ? ShardRange{0, 1} : slice.columns;
  for (std::int64_t e = slice.experts.begin; e < e_end; ++e) {
    std::int64_t part_begin = 0;
    for (std::size_t p = 0; p < spec.parts.size(); ++p) {
      for (std::int64_t r = slice.rows[p].begin; r < slice.rows[p].end; ++r) {
        for (std::int64_t c = columns.begin; c < columns.end; ++c) {
          values.push_back(whole[static_cast<std::size_t>((e * spec.out + part_begin + r) * in + c)]);
        }
      }
      part_begin += spec.parts[p].rows;
    }
  }
  return values;
}

inline std::vector<double> decoded(const Weight& weight) {
  std::vector<double> values;
  std::vector<float> row(static_cast<std::size_t>(weight.in));
  for (std::int64_t e = 0; e < std::max<std::int64_t>(1, weight.experts); ++e) {
    for (std::int64_t r = 0; r < weight.out; ++r) {
      decode_row(weight, e, r, row.data());
      values.insert(values.end(), row.begin(), row.end());
    }
  }
  return values;
}

inline std::vector<double> decoded_bias(const Weight& weight) {
  std::vector<double> values;
  if (weight.bias.empty()) return values;
  for (std::int64_t i = 0; i < weight.bias.elements(); ++i) {
    values.push_back(static_cast<double>(to_float(weight.bias.as<Bf16>()[i])));
  }
  return values;
}

}  // namespace rose::synthetic
