#include "device/backend.h"

#include "base/check.h"

namespace rose::cuda {
namespace {

[[noreturn]] void none() { check_failed(__FILE__, __LINE__, "CUDA", "this build has no CUDA back end"); }

}  // namespace

int device_count(std::string* why) {
  if (why != nullptr) *why = "this build has no CUDA back end";
  return 0;
}
std::string device_description(int) { none(); }
void make_current(int) { none(); }
void* allocate(int, std::size_t) { none(); }
void deallocate(int, void*) noexcept { none(); }
std::size_t memory_free(int) { none(); }
void* allocate_pinned(std::size_t) { none(); }
void deallocate_pinned(void*) noexcept { none(); }
void fill(int, void*, int, std::size_t) { none(); }
std::shared_ptr<void> create_stream(int) { none(); }
std::shared_ptr<void> record(void*) { none(); }
void wait(void*, void*) { none(); }
void synchronize_event(void*) { none(); }
bool reached(void*) { none(); }
float milliseconds_between(void*, void*) { none(); }
void synchronize(void*) { none(); }
void copy(void*, void*, const void*, std::size_t) { none(); }
void begin_capture(void*) { none(); }
std::shared_ptr<void> end_capture(void*) { none(); }
void launch_graph(void*, void*) { none(); }

}  // namespace rose::cuda
