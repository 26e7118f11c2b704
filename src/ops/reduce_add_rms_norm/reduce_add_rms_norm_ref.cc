#include <array>
#include <cmath>

#include "ops/reduce_add_rms_norm/reduce_add_rms_norm.h"
#include "ops/rows.h"

namespace rose::ops::ref {
namespace {

constexpr std::int64_t kPart = 64;  // elements at a time

// body(begin, count) over [0, hidden)
template <class Body>
void for_parts(std::int64_t hidden, const Body& body) {
  for (std::int64_t begin = 0; begin < hidden; begin += kPart) body(begin, std::min(kPart, hidden - begin));
}

}  // namespace

void reduce_add_rms_norm(const Stream& stream, Communicator& communicator, const Tensor& delta, const Tensor& residual,
                         const Tensor& weight, float epsilon, const Tensor& out) {
  if (!delta.empty()) communicator.all_reduce(stream, delta);
  const std::int64_t hidden = residual.size(1);
  const auto one_row = [&](std::int64_t r) {
    std::array<float, kPart> x;
    std::array<float, kPart> more;
    std::array<double, 8> squares{};  // eight chains: the compiler may not reorder a single one
    for_parts(hidden, [&](std::int64_t begin, std::int64_t count) {
      read_row(residual, r, begin, count, x.data());
      if (!delta.empty()) {
        read_row(delta, r, begin, count, more.data());
        for (std::int64_t i = 0; i < count; ++i) x[static_cast<std::size_t>(i)] += more[static_cast<std::size_t>(i)];
        write_row(residual, r, begin, count, x.data());
        read_row(residual, r, begin, count, x.data());  // the norm is of the residual as stored
      }
      for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        squares[i % 8] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
      }
    });
    double sum = 0;
    for (const double square : squares) sum += square;
    const auto scale =
        static_cast<float>(1 / std::sqrt(sum / static_cast<double>(hidden) + static_cast<double>(epsilon)));
    const Bf16* w = weight.as<Bf16>();
    for_parts(hidden, [&](std::int64_t begin, std::int64_t count) {
      read_row(residual, r, begin, count, x.data());
      for (std::int64_t i = 0; i < count; ++i) {
        x[static_cast<std::size_t>(i)] = x[static_cast<std::size_t>(i)] * scale * to_float(w[begin + i]);
      }
      write_row(out, r, begin, count, x.data());
    });
  };
  stream.parallel_for(static_cast<std::size_t>(residual.size(0)), 4, [&](std::size_t begin, std::size_t end) {
    for (std::size_t r = begin; r < end; ++r) one_row(static_cast<std::int64_t>(r));
  });
}

}  // namespace rose::ops::ref
