// Weights as some file stores them, and the one loader that cuts, converts and copies them into an arena. A source only
// says where a weight's bytes are (StoredSource::locate); everything else is here, once for all sources.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "weights/source.h"
#include "weights/staging.h"

namespace rose {

// One stored tensor.
class StoredBytes {
 public:
  virtual ~StoredBytes() = default;
  virtual std::string name() const = 0;  // "model.safetensors: tensor lm_head.weight", for errors
  virtual std::uint64_t size() const = 0;
  // Copies [offset, offset + bytes); inside the tensor (CHECK). StartError when the file cannot give them, or gives
  // bytes that fail their checksum. Called from several threads.
  virtual void read(std::uint64_t offset, std::size_t bytes, void* to) const = 0;
  // The whole tensor where it lies mapped and aligned, its checksums verified; null where it does not.
  virtual const std::byte* mapped() const { return nullptr; }
};

// A matrix inside a stored tensor: [experts,] rows of the part, row-major, beginning `offset` bytes into it.
struct StoredRange {
  std::shared_ptr<const StoredBytes> bytes;  // null: absent
  std::uint64_t offset = 0;
};

struct StoredPart {
  StoredRange payload;
  StoredRange scales;  // fp8, mxfp4
  StoredRange bias;    // bf16 [experts,] rows
};

// The formats are those of Weight, except that `transposed` expert matrices lie as bf16 [experts, in, out].
struct StoredWeight {
  WeightFormat format = WeightFormat::kBf16;
  bool transposed = false;
  bool exact_fp8 = true;          // fp8 only: made from mxfp4 without rounding, and must stay so when cut
  std::vector<StoredPart> parts;  // one for each of WeightSpec::parts; experts have one
};

// What turning mxfp4 experts into FP8 tiles met.
struct TileReport {
  std::int64_t tiles = 0;
  std::int64_t inexact = 0;
  std::array<std::int64_t, 256> spread{};  // tiles by e_max - e_min of their mxfp4 groups; tiles of zeros are not in it
  std::string first_inexact;               // "layers.3.mlp.down expert 5 tile (0, 2): spread 15"

  void add(const TileReport& other);
};

struct SourceOptions {
  bool allow_inexact = false;  // round FP8 tiles that are not exact, instead of StartError
  bool map = false;            // hand out tensors in the mapping where nothing has to be cut or converted; CPU only
  int threads = 1;
  TileReport* report = nullptr;
  std::size_t staging_bytes = 4u << 20;  // of one buffer: a rose file's chunk
  bool staged = false;                   // go through the buffers to the CPU too, as to a GPU: for tests
};

// The slice of `spec` in `format` (kVector and kMatrix: bf16 whatever it says), in arena memory; there when the work of
// the delivery's stream is done.
Weight load_slice(const StoredWeight& stored, const WeightSpec& spec, const WeightSlice& slice, WeightFormat format,
                  Arena& arena, const Delivery& delivery, const SourceOptions& options);

class StoredSource : public WeightSource {
 public:
  explicit StoredSource(SourceOptions options) : options_(options) {}

  // Where the weight lies; shapes and dtypes checked against the spec. Throws StartError.
  virtual StoredWeight locate(const WeightSpec& spec) const = 0;

  Weight load(const WeightSpec& spec, const ParallelPlan& plan, int rank, WeightFormat format, Arena& arena,
              const Stream& stream) override;

 private:
  Staging& staging_for(Device device);

  SourceOptions options_;
  std::mutex staging_mutex_;
  std::unique_ptr<Staging> staging_;  // made by the first load that needs it, kept for the next weights
};

// As open_weights. options.report must outlive the source.
std::unique_ptr<StoredSource> open_stored(const std::string& path, const SourceOptions& options);

}  // namespace rose
