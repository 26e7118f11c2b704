#include "engine/engine_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/result.h"
#include "engine/page_tables.h"
#include "engine/watchdog.h"

namespace rose {
namespace {

constexpr std::int64_t kPagesMax = INT32_MAX / 2;  // slots are i32

std::int64_t pages_of(std::int64_t positions, int page_size) { return (positions + page_size - 1) / page_size; }

// What a windowed set wants.
std::int64_t windowed_pages(int window, const EngineOptions& o) {
  const std::int64_t each = windowed_pages_max(window, 1, o.page_size) + 1;
  return 2 * (o.sequences_max * each + 2 * (pages_of(o.rows_max, o.page_size) + 1));
}

// What one sequence of `context` needs of a set.
std::int64_t least_pages(const KvSetSpec& set, std::int64_t context, int page_size) {
  const std::int64_t whole = pages_of(context, page_size);
  return set.window == 0 ? whole : std::min<std::int64_t>(whole, windowed_pages_max(set.window, 1, page_size));
}

// Pages for contexts of `context` from `budget` bytes; may be fewer than least_pages.
std::vector<int> split(const std::vector<KvSetSpec>& sets, const KvShape& shape, const EngineOptions& o,
                       std::int64_t context, std::size_t budget) {
  std::vector<int> pages(sets.size());
  std::size_t windowed_sets = 0, whole_bytes = 0, left = budget;
  for (const KvSetSpec& set : sets) {
    windowed_sets += set.window != 0;
    if (set.window == 0) whole_bytes += KvCache::page_bytes(set, shape);
  }
  const std::int64_t all = o.sequences_max * pages_of(context, o.page_size);
  for (std::size_t i = 0; i < sets.size(); ++i) {
    if (sets[i].window == 0) continue;
    const std::size_t share = budget / windowed_sets / (whole_bytes > 0 ? 2 : 1);
    const auto most = static_cast<std::int64_t>(share / KvCache::page_bytes(sets[i], shape));
    pages[i] = static_cast<int>(std::min({windowed_pages(sets[i].window, o), all, most, kPagesMax}));
    left -= static_cast<std::size_t>(pages[i]) * KvCache::page_bytes(sets[i], shape);
  }
  for (std::size_t i = 0; i < sets.size(); ++i) {
    if (sets[i].window != 0) continue;
    pages[i] = static_cast<int>(std::min({all, static_cast<std::int64_t>(left / whole_bytes), kPagesMax}));
  }
  return pages;
}

bool holds(const std::vector<KvSetSpec>& sets, const std::vector<int>& pages, std::int64_t context, int page_size) {
  for (std::size_t i = 0; i < sets.size(); ++i) {
    if (pages[i] < least_pages(sets[i], context, page_size)) return false;
  }
  return true;
}

}  // namespace

void check_engine_options(const EngineOptions& o, int positions_max) {
  const auto positive = [](const char* name, std::int64_t value, std::int64_t most) {
    if (value < 1 || value > most)
      throw StartError(fmt::format("{} is {}; it must be 1 to {}", name, value, most), kExitUsage);
  };
  positive("sequences at once", o.sequences_max, 4096);
  positive("rows of a step", o.rows_max, 1 << 16);
  positive("page size", o.page_size, 1024);
  CHECK(o.memory_share > 0 && o.memory_share <= 1, "a share of {} of the memory", o.memory_share);
  positive("waiting requests", o.requests_waiting_max, 1 << 20);
  if (!(o.watchdog_s >= 0 && o.watchdog_s <= kWatchdogSecondsMax)) {
    throw StartError(
        fmt::format("the watchdog's timeout is {} s; it must be 0 (never) to {}", o.watchdog_s, kWatchdogSecondsMax),
        kExitUsage);
  }
  if (o.context_max != 0 && (o.context_max < 2 || o.context_max > positions_max)) {
    throw StartError(
        fmt::format("a context of {} tokens was asked for; the model holds 2 to {}", o.context_max, positions_max),
        kExitUsage);
  }
}

KvPlan plan_kv(const std::vector<KvSetSpec>& sets, const KvShape& shape, const EngineOptions& o, int positions_max,
               std::size_t bytes_free) {
  check_engine_options(o, positions_max);
  KvPlan plan{.context_max = o.context_max != 0 ? o.context_max : positions_max, .pages = o.pages};
  const std::size_t budget =
      o.kv_bytes != 0 ? o.kv_bytes : static_cast<std::size_t>(static_cast<double>(bytes_free) * o.memory_share);
  if (plan.pages.empty()) plan.pages = split(sets, shape, o, plan.context_max, budget);
  CHECK(plan.pages.size() == sets.size(), "{} page counts for {} KV sets", plan.pages.size(), sets.size());
  if (!holds(sets, plan.pages, plan.context_max, o.page_size)) {
    if (o.context_max != 0) {
      std::size_t needed = 0;
      for (const KvSetSpec& set : sets) {
        needed +=
            static_cast<std::size_t>(least_pages(set, plan.context_max, o.page_size)) * KvCache::page_bytes(set, shape);
      }
      throw StartError(fmt::format("one sequence of {} tokens needs {:.1f} MiB of KV cache (pages of {} tokens); the "
                                   "budget is {:.1f} MiB. Give a larger KV budget or a shorter context",
                                   plan.context_max, static_cast<double>(needed) / (1 << 20), o.page_size,
                                   static_cast<double>(budget) / (1 << 20)),
                       kExitDoesNotFit);
    }
    // The longest context that fits: a longer one never needs fewer pages.
    int fits = 0, too_long = plan.context_max;
    while (too_long - fits > 1) {
      const int middle = fits + (too_long - fits) / 2;
      (holds(sets, plan.pages, middle, o.page_size) ? fits : too_long) = middle;
    }
    plan.context_max = fits;
    if (fits < 2)
      throw StartError(fmt::format("the KV budget of {} bytes holds no sequence at all", budget), kExitDoesNotFit);
  }
  plan.bytes = KvCache::bytes(sets, plan.pages, shape);
  return plan;
}

}  // namespace rose
