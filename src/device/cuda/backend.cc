#include "device/backend.h"

#include <cuda_runtime.h>

#include "base/result.h"
#include "device/cuda/check.h"

namespace rose::cuda {
namespace {

cudaStream_t as_stream(void* stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t as_event(void* event) { return static_cast<cudaEvent_t>(event); }

}  // namespace

int device_count(std::string* why) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    cudaGetLastError();  // not sticky: the process goes on without a GPU
    if (why != nullptr) *why = cudaGetErrorString(status);
    return 0;
  }
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    CUDA_CHECK(cudaGetDeviceProperties(&properties, i));
    if (properties.major == 9 && properties.minor == 0) continue;
    if (why != nullptr) {
      *why = fmt::format("cuda:{} is a {} of compute capability {}.{}; the kernels here are for 9.0 (Hopper)", i,
                         properties.name, properties.major, properties.minor);
    }
    return 0;
  }
  return count;
}

std::string device_description(int ordinal) {
  cudaDeviceProp properties{};
  CUDA_CHECK(cudaGetDeviceProperties(&properties, ordinal));
  int driver = 0;
  CUDA_CHECK(cudaDriverGetVersion(&driver));
  return fmt::format("{}, {} SMs, {:.1f} GiB, driver {}.{}", properties.name, properties.multiProcessorCount,
                     static_cast<double>(properties.totalGlobalMem) / (1 << 30), driver / 1000, driver % 1000 / 10);
}

void make_current(int ordinal) { CUDA_CHECK(cudaSetDevice(ordinal)); }

void* allocate(int ordinal, std::size_t bytes) {
  CUDA_CHECK(cudaSetDevice(ordinal));
  void* pointer = nullptr;
  const cudaError_t status = cudaMalloc(&pointer, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw StartError(
        fmt::format("cuda:{} has not enough memory: {:.2f} GiB asked, {:.2f} GiB free", ordinal,
                    static_cast<double>(bytes) / (1 << 30), static_cast<double>(memory_free(ordinal)) / (1 << 30)),
        kExitDoesNotFit);
  }
  CUDA_CHECK(status);
  return pointer;
}

void deallocate(int ordinal, void* pointer) noexcept {
  cudaSetDevice(ordinal);
  cudaFree(pointer);
}

std::size_t memory_free(int ordinal) {
  CUDA_CHECK(cudaSetDevice(ordinal));
  std::size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return free;
}

void* allocate_pinned(std::size_t bytes) {
  void* pointer = nullptr;
  CUDA_CHECK(cudaHostAlloc(&pointer, bytes, cudaHostAllocDefault));
  return pointer;
}

void deallocate_pinned(void* pointer) noexcept { cudaFreeHost(pointer); }

void fill(int ordinal, void* pointer, int byte, std::size_t bytes) {
  CUDA_CHECK(cudaSetDevice(ordinal));
  CUDA_CHECK(cudaMemset(pointer, byte, bytes));
  CUDA_CHECK(cudaDeviceSynchronize());
}

std::shared_ptr<void> create_stream(int ordinal) {
  CUDA_CHECK(cudaSetDevice(ordinal));
  cudaStream_t stream = nullptr;
  CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return {stream, [](void* owned) { cudaStreamDestroy(as_stream(owned)); }};
}

std::shared_ptr<void> record(void* stream) {
  cudaEvent_t event = nullptr;
  CUDA_CHECK(cudaEventCreate(&event));
  CUDA_CHECK(cudaEventRecord(event, as_stream(stream)));
  return {event, [](void* owned) { cudaEventDestroy(as_event(owned)); }};
}

void wait(void* stream, void* event) { CUDA_CHECK(cudaStreamWaitEvent(as_stream(stream), as_event(event), 0)); }
void synchronize_event(void* event) { CUDA_CHECK(cudaEventSynchronize(as_event(event))); }

bool reached(void* event) {
  const cudaError_t status = cudaEventQuery(as_event(event));
  if (status == cudaErrorNotReady) return false;
  CUDA_CHECK(status);
  return true;
}

float milliseconds_between(void* from, void* to) {
  float milliseconds = 0;
  CUDA_CHECK(cudaEventElapsedTime(&milliseconds, as_event(from), as_event(to)));
  return milliseconds;
}

void synchronize(void* stream) { CUDA_CHECK(cudaStreamSynchronize(as_stream(stream))); }

void copy(void* stream, void* destination, const void* source, std::size_t bytes) {
  CUDA_CHECK(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, as_stream(stream)));
}

void begin_capture(void* stream) {
  CUDA_CHECK(cudaStreamBeginCapture(as_stream(stream), cudaStreamCaptureModeThreadLocal));
}

std::shared_ptr<void> end_capture(void* stream) {
  cudaGraph_t graph = nullptr;
  CUDA_CHECK(cudaStreamEndCapture(as_stream(stream), &graph));
  cudaGraphExec_t executable = nullptr;
  CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
  CUDA_CHECK(cudaGraphDestroy(graph));
  return {executable, [](void* owned) { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(owned)); }};
}

void launch_graph(void* graph, void* stream) {
  CUDA_CHECK(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), as_stream(stream)));
}

}  // namespace rose::cuda
