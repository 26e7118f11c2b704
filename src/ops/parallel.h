// Independent pieces of work of unequal cost, taken by the stream's threads as they become free. Which thread runs a
// piece has no influence on its result.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "device/stream.h"

namespace rose::ops {

template <class Body>
void for_each_piece(const Stream& stream, std::int64_t pieces, const Body& body) {
  if (pieces <= 0) return;
  if (pieces == 1 || stream.threads() == 1) {
    for (std::int64_t piece = 0; piece < pieces; ++piece) body(piece);
    return;
  }
  std::atomic<std::int64_t> next{0};
  const auto take = [&](std::size_t, std::size_t) {
    for (std::int64_t piece = next++; piece < pieces; piece = next++) body(piece);
  };
  // std::ref: a std::function that holds a reference does not allocate.
  stream.parallel_for(static_cast<std::size_t>(stream.threads()), 1, std::ref(take));
}

}  // namespace rose::ops
