// Source, where no other is named: the public per-operation database ai-dynamo/aiconfigurator, tables of h200_sxm,
// snapshot 095f58a of 2026-08-21, CUDA graphs on an H200. Where nobody published the very shape, a neighbour is scaled
// by its FLOPs, and the source says so.
#include "bench_ops_published.h"

#include <algorithm>
#include <array>

namespace rose {
namespace {

struct Entry {
  int a = 0;
  int b = 0;
  PublicTime time;
};

template <std::size_t kCount>
PublicTime find(const std::array<Entry, kCount>& table, int a, int b) {
  const auto* const found =
      std::find_if(table.begin(), table.end(), [&](const Entry& e) { return e.a == a && e.b == b; });
  return found == table.end() ? PublicTime{} : found->time;
}

constexpr const char* kFa3 = "FA3 bf16, vLLM 0.22";
constexpr const char* kFa3Decode = "FA3 bf16, vLLM 0.24";
constexpr const char* kSglangWindow = "SGLang bf16";
constexpr const char* kTriton = "OpenAI Triton kernels, vLLM 0.24";
constexpr const char* kTrt = "TensorRT-LLM 1.2.0rc5";
constexpr const char* kCublas = "cuBLAS bf16 at K 2560, vLLM 0.24, scaled to 2880";
constexpr const char* kSmallLinear = "cuBLAS bf16 at K 2560, vLLM 0.24";

// Tokens, window.
constexpr std::array kAttentionPrefill = {Entry{1024, 0, {37, kFa3}},    Entry{4096, 0, {303, kFa3}},
                                          Entry{8192, 0, {1089, kFa3}},  Entry{16384, 0, {4140, kFa3}},
                                          Entry{1024, 128, {24, kFa3}},  Entry{4096, 128, {76, kFa3}},
                                          Entry{8192, 128, {141, kFa3}}, Entry{16384, 128, {277, kFa3}}};

// Sequences, context.
constexpr std::array kAttentionDecode = {Entry{1, 1024, {11.7, kFa3Decode}}, Entry{1, 8192, {15.8, kFa3Decode}},
                                         Entry{1, 65536, {46, kFa3Decode}},  Entry{8, 8192, {45, kFa3Decode}},
                                         Entry{8, 65536, {258, kFa3Decode}}, Entry{64, 8192, {263, kFa3Decode}},
                                         Entry{128, 1024, {93, kFa3Decode}}};

// Sequences, window.
constexpr std::array kWindowDecode = {Entry{1, 128, {9.6, kSglangWindow}}, Entry{8, 128, {10.7, kSglangWindow}},
                                      Entry{64, 128, {20.8, kSglangWindow}}, Entry{128, 128, {36, kSglangWindow}}};

// Experts, rows; MXFP4 weights, bf16 activations, top 4, balanced.
constexpr std::array kExperts = {
    Entry{128, 1, {60, kTriton}},      Entry{128, 8, {189, kTriton}},   Entry{128, 32, {583, kTrt}},
    Entry{128, 64, {588, kTrt}},       Entry{128, 128, {587, kTrt}},    Entry{128, 512, {596, kTrt}},
    Entry{128, 1024, {711, kTrt}},     Entry{128, 2048, {971, kTrt}},   Entry{128, 4096, {1498, kTriton}},
    Entry{128, 8192, {2905, kTriton}}, Entry{32, 1, {60, kTriton}},     Entry{32, 8, {189, kTriton}},
    Entry{32, 32, {175, kTrt}},        Entry{32, 64, {175, kTrt}},      Entry{32, 128, {176, kTrt}},
    Entry{32, 512, {262, kTrt}},       Entry{32, 1024, {407, kTriton}}, Entry{32, 2048, {781, kTriton}},
    Entry{32, 4096, {1496, kTriton}},  Entry{32, 8192, {2917, kTriton}}};

// The same under a power law with exponent 1.2.
constexpr const char* kTritonSkewed = "OpenAI Triton kernels, vLLM 0.24, power law 1.2";
constexpr std::array kExpertsSkewed = {
    Entry{128, 1, {60, kTritonSkewed}},      Entry{128, 8, {183, kTritonSkewed}},
    Entry{128, 32, {331, kTritonSkewed}},    Entry{128, 64, {508, kTritonSkewed}},
    Entry{128, 128, {584, kTritonSkewed}},   Entry{128, 512, {1067, kTritonSkewed}},
    Entry{128, 1024, {1378, kTritonSkewed}}, Entry{128, 2048, {1758, kTritonSkewed}},
    Entry{128, 4096, {2595, kTritonSkewed}}, Entry{128, 8192, {4021, kTritonSkewed}}};

// Outputs, rows. At few rows nothing is scaled: launch and latency decide there.
constexpr double kScale = 2880.0 / 2560;
constexpr std::array kLinear = {Entry{5120, 1, {10.3, kSmallLinear}}, Entry{5120, 128, {10.6, kSmallLinear}},
                                Entry{5120, 1024, {35.7 * kScale, kCublas}},
                                Entry{5120, 4096, {144.7 * kScale, kCublas}},
                                Entry{5120, 8192, {263 * kScale, kCublas}}};

}  // namespace

PublicTime public_attention_prefill(int tokens, int window) { return find(kAttentionPrefill, tokens, window); }

PublicTime public_attention_decode(int sequences, int context, int window) {
  return window > 0 ? find(kWindowDecode, sequences, window) : find(kAttentionDecode, sequences, context);
}

PublicTime public_experts(int experts, int rows, OpRouting routing) {
  switch (routing) {
    case OpRouting::kBalanced:
      return find(kExperts, experts, rows);
    case OpRouting::kSkewed:
      return find(kExpertsSkewed, experts, rows);
    case OpRouting::kRandom:
      return {};
  }
  return {};
}

PublicTime public_linear(int out, int rows) { return find(kLinear, out, rows); }

}  // namespace rose
