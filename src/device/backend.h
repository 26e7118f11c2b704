// What the CUDA back end gives to device.cc and stream.cc. Two implementations, one linked: cuda/ (CUDA runtime,
// static) and no_cuda/ (every call says that this build has no CUDA).
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace rose::cuda {

// GPUs that this process can use; 0 without a driver. `why` says why there are none.
int device_count(std::string* why = nullptr);
std::string device_description(int ordinal);  // "NVIDIA H200, 132 SMs, 139.8 GiB, driver 13.0"

void make_current(int ordinal);                  // for what the calling thread does next: records, launches
void* allocate(int ordinal, std::size_t bytes);  // throws StartError (kExitDoesNotFit)
void deallocate(int ordinal, void* pointer) noexcept;
std::size_t memory_free(int ordinal);
void* allocate_pinned(std::size_t bytes);  // host memory that copies run asynchronously from
void deallocate_pinned(void* pointer) noexcept;
void fill(int ordinal, void* pointer, int byte, std::size_t bytes);  // synchronous

std::shared_ptr<void> create_stream(int ordinal);
std::shared_ptr<void> record(void* stream);  // an event; waits do not busy the CPU
void wait(void* stream, void* event);
void synchronize_event(void* event);
bool reached(void* event);
float milliseconds_between(void* from, void* to);  // of two reached events
void synchronize(void* stream);
void copy(void* stream, void* destination, const void* source, std::size_t bytes);

// Graphs: what is launched between begin and end is recorded, not run.
void begin_capture(void* stream);
std::shared_ptr<void> end_capture(void* stream);
void launch_graph(void* graph, void* stream);

}  // namespace rose::cuda
