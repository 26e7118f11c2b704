// Against the reference, bit for bit, with pairs that depend on each other.
#include <gtest/gtest.h>

#include <vector>

#include "ops/copy_pages/copy_pages.h"
#include "ops/copy_pages/copy_pages_cuda.h"
#include "ops/testing/compare.h"
#include "ops/testing/gpu.h"

namespace rose::ops {
namespace {

using testing::Gpu;
using testing::OwnedTensor;

OwnedTensor pairs_of(const std::vector<std::int32_t>& flat) {
  OwnedTensor tensor(DType::kI32, {static_cast<std::int64_t>(flat.size() / 2), 2});
  std::copy(flat.begin(), flat.end(), tensor->as<std::int32_t>());
  return tensor;
}

std::vector<std::int32_t> random_pairs(int count, int from_pages, int to_pages) {
  std::vector<std::int32_t> flat;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t bits = random_bits(3, static_cast<std::uint64_t>(i)) >> 8;
    flat.push_back(static_cast<std::int32_t>(bits % static_cast<std::uint64_t>(from_pages)));
    flat.push_back(static_cast<std::int32_t>((bits >> 24) % static_cast<std::uint64_t>(to_pages)));
  }
  return flat;
}

struct Layer {
  OwnedTensor keys, values;

  Layer(DType dtype, std::int64_t pages, std::int64_t page_size, std::int64_t heads, std::int64_t dim,
        std::uint64_t seed)
      : keys(testing::random_tensor(dtype, {pages, heads, page_size, dim}, seed)),
        values(testing::random_tensor(dtype, {pages, heads, page_size, dim}, seed + 1)) {}
  KvLayer kv() const { return {*keys, *values, static_cast<int>(keys->size(2))}; }
  KvLayer on(Gpu& gpu) const { return {gpu.upload(*keys), gpu.upload(*values), static_cast<int>(keys->size(2))}; }
};

void expect_equal(Gpu& gpu, const KvLayer& device, const Layer& expected) {
  for (const bool keys : {true, false}) {
    const Tensor& want = keys ? *expected.keys : *expected.values;
    const OwnedTensor got(want.dtype(), {want.size(0), want.size(1), want.size(2), want.size(3)});
    gpu.download(keys ? device.keys : device.values, *got);
    EXPECT_EQ(testing::bit_difference(*got, want), "") << (keys ? "keys" : "values");
  }
}

// Two layers: from `from` to `to`.
void expect_reference_between(const Layer& from, const Layer& to, const std::vector<std::int32_t>& flat) {
  const OwnedTensor pairs = pairs_of(flat);
  Gpu gpu;
  const KvLayer device_from = from.on(gpu);
  KvLayer device_to = to.on(gpu);
  cuda::copy_pages(gpu.stream, device_from, device_to, gpu.upload(*pairs));
  KvLayer expected = to.kv();
  ref::copy_pages(Stream::cpu(1), from.kv(), expected, *pairs);
  expect_equal(gpu, device_to, to);
  expect_equal(gpu, device_from, from);
}

void expect_reference_within(const Layer& layer, const std::vector<std::int32_t>& flat) {
  const OwnedTensor pairs = pairs_of(flat);
  Gpu gpu;
  KvLayer device = layer.on(gpu);
  cuda::copy_pages(gpu.stream, device, device, gpu.upload(*pairs));
  KvLayer expected = layer.kv();
  ref::copy_pages(Stream::cpu(1), expected, expected, *pairs);
  expect_equal(gpu, device, layer);
}

TEST(CudaCopyPages, EqualsTheReferenceBetweenLayers) {
  expect_reference_between(Layer(DType::kBf16, 9, 32, 8, 64, 1), Layer(DType::kBf16, 7, 32, 8, 64, 5),
                           random_pairs(21, 9, 7));
  expect_reference_between(Layer(DType::kBf16, 3, 4, 1, 8, 1), Layer(DType::kBf16, 2, 4, 1, 8, 5), {2, 0});
  expect_reference_between(Layer(DType::kF32, 5, 3, 3, 20, 1), Layer(DType::kF32, 8, 3, 3, 20, 5),
                           random_pairs(17, 5, 8));
  expect_reference_between(Layer(DType::kBf16, 3, 4, 1, 8, 1), Layer(DType::kBf16, 2, 4, 1, 8, 5), {});
  expect_reference_between(Layer(DType::kF8E4M3, 9, 32, 8, 64, 1), Layer(DType::kF8E4M3, 7, 32, 8, 64, 5),
                           random_pairs(21, 9, 7));
}

TEST(CudaCopyPages, LaterPairsReadWhatEarlierOnesWrote) {
  expect_reference_within(Layer(DType::kBf16, 4, 4, 2, 8, 1), {0, 1, 1, 2, 3, 3, 2, 0});
  // A page handed down a chain that is longer than any batch, pages rewritten in between.
  std::vector<std::int32_t> chain;
  for (int i = 0; i < 30; ++i) chain.insert(chain.end(), {i, i + 1, 31, i});
  expect_reference_within(Layer(DType::kBf16, 32, 32, 2, 64, 1), chain);
  // Few pages, many pairs: nearly every pair depends on one just before it.
  expect_reference_within(Layer(DType::kBf16, 5, 32, 8, 64, 1), random_pairs(99, 5, 5));
}

TEST(CudaCopyPages, APairWithoutAPageIsPassedOver) {
  const Layer layer(DType::kBf16, 4, 4, 2, 8, 1);
  Gpu gpu;
  KvLayer device = layer.on(gpu);
  cuda::copy_pages(gpu.stream, device, device, gpu.upload(*pairs_of({-1, -1, 0, 4, 4, 0, 2, 1, 1, -7})));
  KvLayer expected = layer.kv();
  ref::copy_pages(Stream::cpu(1), expected, expected, *pairs_of({2, 1}));
  expect_equal(gpu, device, layer);
}

}  // namespace
}  // namespace rose::ops
