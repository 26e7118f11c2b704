#include "ops/check.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/check.h"

namespace rose::ops {
namespace {

std::string sizes_text(std::initializer_list<std::int64_t> sizes) {
  std::string text = "[";
  for (const std::int64_t size : sizes) {
    if (text.size() > 1) text += ", ";
    text += size < 0 ? "any" : std::to_string(size);
  }
  return text + "]";
}

bool sizes_match(const Tensor& tensor, std::initializer_list<std::int64_t> sizes) {
  if (tensor.rank() != static_cast<int>(sizes.size())) return false;
  int dim = 0;
  for (const std::int64_t size : sizes) {
    if (size >= 0 && tensor.size(dim) != size) return false;
    ++dim;
  }
  return true;
}

// [experts,] rows, columns
void check_stacked(const Stream& stream, std::string_view name, const Tensor& tensor, DType dtype, const Weight& weight,
                   std::int64_t rows, std::int64_t columns) {
  if (weight.experts > 0) {
    check_tensor(stream, name, tensor, {dtype}, {weight.experts, rows, columns});
  } else {
    check_tensor(stream, name, tensor, {dtype}, {rows, columns});
  }
  CHECK(tensor.contiguous(), "{}: {} is not contiguous", name, tensor.describe());
}

}  // namespace

void check_tensor(const Stream& stream, std::string_view name, const Tensor& tensor,
                  std::initializer_list<DType> dtypes, std::initializer_list<std::int64_t> sizes) {
  CHECK(sizes_match(tensor, sizes), "{}: {}, expected {}", name, tensor.describe(), sizes_text(sizes));
  CHECK(std::find(dtypes.begin(), dtypes.end(), tensor.dtype()) != dtypes.end(), "{}: {}, expected {}", name,
        tensor.describe(), dtype_name(*dtypes.begin()));
  if (tensor.elements() == 0) return;
  CHECK(!tensor.empty(), "{}: null", name);
  CHECK(tensor.device() == stream.device(), "{}: {}, but the stream is on {}", name, tensor.describe(),
        stream.device().name());
  CHECK(tensor.stride(-1) == 1, "{}: {} has innermost stride {}", name, tensor.describe(), tensor.stride(-1));
}

void check_activations(const Stream& stream, std::string_view name, const Tensor& tensor, std::int64_t rows,
                       std::int64_t width) {
  check_tensor(stream, name, tensor, {DType::kF32, DType::kBf16}, {rows, width});
}

void check_weight(const Stream& stream, std::string_view name, const Weight& weight) {
  CHECK(weight.out > 0 && weight.in > 0 && weight.experts >= 0, "{}: {} experts of {} x {}", name, weight.experts,
        weight.out, weight.in);
  switch (weight.format) {
    case WeightFormat::kBf16:
      check_stacked(stream, name, weight.payload, DType::kBf16, weight, weight.out, weight.in);
      break;
    case WeightFormat::kFp8:
      check_stacked(stream, name, weight.payload, DType::kF8E4M3, weight, weight.out, weight.in);
      check_stacked(stream, name, weight.scales, DType::kF32, weight, (weight.out + kFp8Tile - 1) / kFp8Tile,
                    (weight.in + kFp8Tile - 1) / kFp8Tile);
      break;
    case WeightFormat::kMxfp4:
      CHECK(weight.in % kMxfp4Group == 0, "{}: {} inputs are not whole groups of {}", name, weight.in, kMxfp4Group);
      check_stacked(stream, name, weight.payload, DType::kU8, weight, weight.out, weight.in / 2);
      check_stacked(stream, name, weight.scales, DType::kU8, weight, weight.out, weight.in / kMxfp4Group);
      break;
  }
  if (weight.bias.empty()) return;
  if (weight.experts > 0) {
    check_tensor(stream, name, weight.bias, {DType::kBf16}, {weight.experts, weight.out});
  } else {
    check_tensor(stream, name, weight.bias, {DType::kBf16}, {weight.out});
  }
}

void no_kernel(std::string_view operation, const Stream& stream) {
  CHECK(false, "{}: this build has no kernel for {}", operation, stream.device().name());
  std::abort();
}

}  // namespace rose::ops
