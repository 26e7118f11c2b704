// Ranks as threads of one process on CPU memory.
#include <barrier>
#include <cstring>

#include "device/place.h"
#include "parallel/communicator.h"

namespace rose {
namespace {

class Solo final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce(const Stream&, const Tensor&) override {}
  void all_gather(const Stream& stream, const Tensor& tensor, const Tensor& out) override {
    copy_async(stream, out.raw(), tensor.raw(), tensor.bytes());
  }
  void barrier(const Stream&) override {}
};

struct Group {
  explicit Group(int ranks) : tensors(static_cast<std::size_t>(ranks)), meeting(ranks) {}
  std::vector<Tensor> tensors;  // by rank, valid between two meetings

  // A rank that waits here is not the one that is stuck.
  void meet() {
    const PlaceOf place("waiting for the other ranks");
    meeting.arrive_and_wait();
  }

 private:
  std::barrier<> meeting;
};

class Loopback final : public Communicator {
 public:
  Loopback(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->tensors.size()); }

  void all_reduce(const Stream&, const Tensor& tensor) override {
    CHECK(tensor.contiguous(), "{}", tensor.describe());
    publish(tensor);
    // Each rank sums its own copy before anybody overwrites: sum into private memory, meet, then store.
    std::vector<double> sum(static_cast<std::size_t>(tensor.elements()), 0.0);
    for (const Tensor& part : group_->tensors) add(part, sum);
    group_->meet();
    store(sum, tensor);
    group_->meet();
  }

  void all_gather(const Stream&, const Tensor& tensor, const Tensor& out) override {
    CHECK(tensor.contiguous() && out.contiguous() && out.bytes() == tensor.bytes() * group_->tensors.size(), "{} to {}",
          tensor.describe(), out.describe());
    publish(tensor);
    for (std::size_t part = 0; part < group_->tensors.size(); ++part) {
      std::memcpy(static_cast<std::byte*>(out.raw()) + part * tensor.bytes(), group_->tensors[part].raw(),
                  tensor.bytes());
    }
    group_->meet();
  }

  void barrier(const Stream&) override { group_->meet(); }

 private:
  void publish(const Tensor& tensor) {
    group_->tensors[static_cast<std::size_t>(rank_)] = tensor;
    group_->meet();
    for (const Tensor& part : group_->tensors) {
      CHECK(part.dtype() == tensor.dtype() && part.elements() == tensor.elements(), "ranks disagree: {} and {}",
            part.describe(), tensor.describe());
    }
  }

  static void add(const Tensor& part, std::vector<double>& sum) {
    if (part.dtype() == DType::kBf16) {
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += to_float(part.as<Bf16>()[i]);
    } else {
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part.as<float>()[i];
    }
  }

  static void store(const std::vector<double>& sum, const Tensor& tensor) {
    if (tensor.dtype() == DType::kBf16) {
      for (std::size_t i = 0; i < sum.size(); ++i) tensor.as<Bf16>()[i] = to_bf16(static_cast<float>(sum[i]));
    } else {
      for (std::size_t i = 0; i < sum.size(); ++i) tensor.as<float>()[i] = static_cast<float>(sum[i]);
    }
  }

  std::shared_ptr<Group> group_;
  int rank_;
};

}  // namespace

std::unique_ptr<Communicator> make_solo_communicator() { return std::make_unique<Solo>(); }

std::vector<std::unique_ptr<Communicator>> make_loopback_communicators(int ranks) {
  CHECK(ranks >= 1, "{} ranks", ranks);
  std::vector<std::unique_ptr<Communicator>> communicators;
  if (ranks == 1) {
    communicators.push_back(make_solo_communicator());
    return communicators;
  }
  const auto group = std::make_shared<Group>(ranks);
  for (int rank = 0; rank < ranks; ++rank) communicators.push_back(std::make_unique<Loopback>(group, rank));
  return communicators;
}

}  // namespace rose
