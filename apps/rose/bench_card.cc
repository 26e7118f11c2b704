#include "bench_card.h"

#include <dlfcn.h>

#include <array>

namespace rose {

// The few entry points in use, as NVML's documentation declares them; every result is 0 for success.
struct Card::Nvml {
  using Device = void*;

  explicit Nvml(void* library) : library(library) {}
  ~Nvml() {
    if (started) find<int()>("nvmlShutdown")();
    dlclose(library);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  template <class Function>
  Function* find(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(library, name));
  }
  // One number about the device; nothing where the driver cannot tell.
  template <class... Selector>
  std::optional<unsigned> number(const char* name, Selector... selector) const {
    auto* const function = find<int(Device, Selector..., unsigned*)>(name);
    unsigned value = 0;
    if (function == nullptr || function(device, selector..., &value) != 0) return std::nullopt;
    return value;
  }

  void* library;
  bool started = false;
  Device device = nullptr;
};

Card::Card() {
  void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  auto nvml = std::make_unique<Nvml>(library);
  auto* const start = nvml->find<int()>("nvmlInit_v2");
  auto* const handle = nvml->find<int(unsigned, Nvml::Device*)>("nvmlDeviceGetHandleByIndex_v2");
  auto* const name = nvml->find<int(Nvml::Device, char*, unsigned)>("nvmlDeviceGetName");
  auto* const driver = nvml->find<int(char*, unsigned)>("nvmlSystemGetDriverVersion");
  if (start == nullptr || handle == nullptr || nvml->find<int()>("nvmlShutdown") == nullptr || start() != 0) return;
  nvml->started = true;
  std::array<char, 96> text{};  // NVML's longest name
  if (driver != nullptr && driver(text.data(), text.size()) == 0) driver_ = text.data();
  if (handle(0, &nvml->device) != 0) return;
  if (name != nullptr && name(nvml->device, text.data(), text.size()) == 0) name_ = text.data();
  nvml_ = std::move(nvml);
}

Card::~Card() = default;

CardState Card::state() const {
  CardState state;
  if (!nvml_) return state;
  constexpr int kSmClock = 1, kGpuTemperature = 0;
  if (const auto mhz = nvml_->number("nvmlDeviceGetClockInfo", kSmClock)) state.sm_clock_mhz = static_cast<int>(*mhz);
  if (const auto mw = nvml_->number("nvmlDeviceGetPowerUsage")) state.power_w = *mw * 1e-3;
  if (const auto c = nvml_->number("nvmlDeviceGetTemperature", kGpuTemperature)) {
    state.temperature_c = static_cast<int>(*c);
  }
  return state;
}

}  // namespace rose
