// What the GPU's driver says about it while something is timed: NVML, if it is there.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace rose {

struct CardState {
  std::optional<int> sm_clock_mhz;
  std::optional<double> power_w;
  std::optional<int> temperature_c;
};

// The first GPU that NVML lists. Without a driver everything is empty.
class Card {
 public:
  Card();
  ~Card();
  Card(const Card&) = delete;
  Card& operator=(const Card&) = delete;

  const std::string& name() const { return name_; }      // "NVIDIA H200"
  const std::string& driver() const { return driver_; }  // "580.159.04"
  CardState state() const;

 private:
  struct Nvml;
  std::unique_ptr<Nvml> nvml_;
  std::string name_;
  std::string driver_;
};

}  // namespace rose
