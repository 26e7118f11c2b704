#include <vector>

#include "ops/linear/linear.h"
#include "ops/rows.h"

namespace rose::ops::ref {

void linear(const Stream& stream, const Tensor& x, const Weight& weight, const Tensor& y) {
  const auto outs = static_cast<std::size_t>(weight.out);
  stream.parallel_for(outs, 1, [&](std::size_t begin, std::size_t end) {
    std::vector<float> w(static_cast<std::size_t>(weight.in));
    std::vector<float> in(static_cast<std::size_t>(weight.in));
    for (auto o = static_cast<std::int64_t>(begin); o < static_cast<std::int64_t>(end); ++o) {
      decode_row(weight, 0, o, w.data());
      for (std::int64_t r = 0; r < x.size(0); ++r) {
        read_row(x, r, 0, weight.in, in.data());
        double sum = bias_at(weight.bias, o);
        for (std::size_t i = 0; i < in.size(); ++i) sum += static_cast<double>(w[i]) * static_cast<double>(in[i]);
        write_row(y, r, o, 1, &sum);
      }
    }
  });
}

}  // namespace rose::ops::ref
