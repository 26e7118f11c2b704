// What ranks say to each other inside a step. All calls are collective over the group, in stream order.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "device/stream.h"
#include "tensor/tensor.h"

namespace rose {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // tensor = sum over ranks of tensor, summed in rank order on every rank, so that all ranks hold equal bits.
  virtual void all_reduce(const Stream& stream, const Tensor& tensor) = 0;
  // out [size, ...] = every rank's tensor, by rank.
  virtual void all_gather(const Stream& stream, const Tensor& tensor, const Tensor& out) = 0;
  virtual void barrier(const Stream& stream) = 0;
};

// One rank: every call returns at once.
std::unique_ptr<Communicator> make_solo_communicator();

// Ranks as threads of this process on CPU memory (for CI and for CPU runs of tp > 1).
std::vector<std::unique_ptr<Communicator>> make_loopback_communicators(int ranks);

}  // namespace rose
