// What a grammar says about the next token of one sequence. Lives on the host, in the engine's loop thread.
#pragma once

#include <cstdint>
#include <span>

namespace rose {

class TokenMask {
 public:
  virtual ~TokenMask() = default;
  // Writes ceil(vocabulary / 32) words, bit set = allowed. False: everything is allowed, bits were not written.
  virtual bool mask(std::span<std::int32_t> bits) = 0;
  // The sequence took this token.
  virtual void advance(std::int32_t token) = 0;
};

}  // namespace rose
