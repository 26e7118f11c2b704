// oracle_logits MODEL FORMAT CHUNK OUT [DEVICE] <ids
//
// Runs the whitespace-separated token ids of stdin through the model (a checkpoint folder or a rose file), its experts
// in FORMAT (mxfp4, fp8, bf16), CHUNK rows a step, and writes the logits of every id to OUT: f32, row-major [ids,
// vocabulary]. DEVICE is cpu (activations and KV in f32; the default), cuda
// (in bf16, in e4m3 between the experts' products) or cuda-bf16 (in bf16 there, too). Used by
// tools/oracle/run_live.py.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "models/model.h"
#include "models/testing/model_runner.h"

namespace {

std::vector<std::int32_t> read_ids(int vocabulary) {
  std::vector<std::int32_t> ids;
  for (std::int64_t id = 0; std::cin >> id;) {
    if (id < 0 || id >= vocabulary)
      throw rose::StartError(fmt::format("id {} outside of 0..{}", id, vocabulary - 1), 2);
    ids.push_back(static_cast<std::int32_t>(id));
  }
  if (ids.empty() || !std::cin.eof()) throw rose::StartError("stdin: expected token ids", 2);
  return ids;
}

int positive(const std::string& text) {
  if (text.empty() || text.size() > 6 || text.find_first_not_of("0123456789") != std::string::npos || text[0] == '0') {
    throw rose::StartError(fmt::format("CHUNK is {}; expected a number from 1 to 999999", text), 2);
  }
  return std::stoi(text);
}

rose::Stream stream_on(const std::string& device) {
  if (device == "cuda" || device == "cuda-bf16") return rose::Stream::cuda(0);
  if (device != "cpu") throw rose::StartError(fmt::format("DEVICE is {}; expected cpu, cuda or cuda-bf16", device), 2);
  return rose::Stream::cpu(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
}

void run(const std::string& path, const std::string& format_name, int chunk, const std::string& out_path,
         const std::string& device) {
  const auto format = rose::weight_format_from_name(format_name);
  if (!format) throw rose::StartError(fmt::format("FORMAT is {}; expected mxfp4, fp8 or bf16", format_name), 2);
  const rose::Stream stream = stream_on(device);
  const rose::DType dtype = device == "cpu" ? rose::DType::kF32 : rose::DType::kBf16;
  const auto source = rose::open_weights(path);
  const std::vector<std::int32_t> ids = read_ids(rose::model_shape(*source).vocabulary);
  const auto model = rose::load_model(
      *source, {.plan = {}, .expert_format = *format, .activations = dtype, .bf16_experts = device == "cuda-bf16"},
      stream, {});
  const auto solo = rose::make_solo_communicator();
  const int count = static_cast<int>(ids.size());
  rose::testing::ModelRunner runner(
      *model, *solo, stream,
      {.rows_max = std::min(chunk, count), .positions_max = count, .kv_dtype = dtype, .activations = dtype});
  std::vector<int> rows(ids.size());
  std::iota(rows.begin(), rows.end(), 0);
  std::ofstream out(out_path, std::ios::binary);
  for (const std::vector<float>& logits : runner.run(ids, rows, chunk)) {
    out.write(reinterpret_cast<const char*>(logits.data()),
              static_cast<std::streamsize>(logits.size() * sizeof(float)));
  }
  out.close();
  if (!out.good()) throw rose::StartError(fmt::format("{}: not written", out_path));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5 && argc != 6) {
    std::fputs("usage: oracle_logits MODEL FORMAT CHUNK OUT [DEVICE] <ids\n", stderr);
    return 2;
  }
  try {
    run(argv[1], argv[2], positive(argv[3]), argv[4], argc == 6 ? argv[5] : "cpu");
  } catch (const rose::StartError& error) {
    std::fprintf(stderr, "oracle_logits: %s\n", error.what());
    return error.exit_code();
  }
}
