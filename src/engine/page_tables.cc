#include "engine/page_tables.h"

#include <algorithm>

#include "base/check.h"

namespace rose {

int windowed_pages_max(int window, int rows, int page_size) {
  // Positions [p - window + 1, p + rows) of any alignment.
  return (window - 1 + rows + page_size - 2) / page_size + 1;
}

PageTables::PageTables(const std::vector<PageSetLimits>& sets, int page_size, bool keep_cached, std::uint64_t secret)
    : page_size_(page_size), secret_(secret) {
  CHECK(!sets.empty() && page_size > 0, "{} KV sets, page size {}", sets.size(), page_size);
  sets_.reserve(sets.size());
  for (const PageSetLimits& set : sets) sets_.push_back({set.window, PagePool(set.pages, page_size, keep_cached)});
}

int PageTables::first_visible_page(const Set& set, int position) const {
  return set.window == 0 ? 0 : std::max(0, position - set.window + 1) / page_size_;
}

std::span<const std::int32_t> PageTables::tokens_of(const Sequence& s, int page) const {
  const auto size = static_cast<std::size_t>(page_size_);
  return std::span(s.tokens).subspan(static_cast<std::size_t>(page) * size, size);
}

void PageTables::extend_hashes(Sequence& s) const {
  const int full = static_cast<int>(s.tokens.size()) / page_size_;
  for (int page = static_cast<int>(s.hashes.size()); page < full; ++page) {
    s.hashes.push_back(page_hash(page == 0 ? s.owner->root : s.hashes.back(), tokens_of(s, page)));
  }
}

int PageTables::longest_prefix(const Sequence& s) const {
  int limit = (static_cast<int>(s.tokens.size()) - 1) / page_size_;  // at least one token is computed
  const auto has = [&](const Set& set, int page) {
    return set.pool.contains(s.hashes[static_cast<std::size_t>(page)], tokens_of(s, page));
  };
  for (const Set& set : sets_) {
    if (set.window != 0) continue;
    int run = 0;
    while (run < limit && has(set, run)) ++run;
    limit = run;
  }
  // For each windowed set the start of the run of resident pages that ends before page k decides whether k will do.
  std::vector<bool> fits(static_cast<std::size_t>(limit) + 1, true);
  for (const Set& set : sets_) {
    if (set.window == 0) continue;
    int run_begin = 0;
    for (int k = 1; k <= limit; ++k) {
      if (!has(set, k - 1)) run_begin = k;
      if (first_visible_page(set, k * page_size_) < run_begin) fits[static_cast<std::size_t>(k)] = false;
    }
  }
  while (limit > 0 && !fits[static_cast<std::size_t>(limit)]) --limit;
  return limit;
}

void PageTables::share_prefix(Sequence& s) {
  CHECK(s.kv_tokens == 0, "a sequence with {} positions in KV looks for a prefix", s.kv_tokens);
  extend_hashes(s);
  const int length = longest_prefix(s);
  s.pages.resize(sets_.size());
  for (std::size_t i = 0; i < sets_.size(); ++i) {
    PageList& list = s.pages[i];
    CHECK(list.pages.empty(), "a sequence that holds pages looks for a prefix");
    // With a window of 1 the next row sees no page of the prefix.
    list.first = std::min(first_visible_page(sets_[i], length * page_size_), length);
    for (int page = list.first; page < length; ++page) {
      const int shared = sets_[i].pool.share(s.hashes[static_cast<std::size_t>(page)], tokens_of(s, page));
      CHECK(shared >= 0, "page {} of a cached prefix is gone", page);
      list.pages.push_back(shared);
    }
  }
  s.kv_tokens = length * page_size_;
  s.published = length;
}

void PageTables::recycle(Sequence& s) {
  for (std::size_t i = 0; i < sets_.size(); ++i) {
    PageList& list = s.pages[i];
    const int keep = std::min(first_visible_page(sets_[i], s.kv_tokens), list.end());
    if (keep <= list.first) continue;
    const auto drop = list.pages.begin() + (keep - list.first);
    for (auto page = list.pages.begin(); page != drop; ++page) sets_[i].pool.release(*page, s.last_step);
    list.pages.erase(list.pages.begin(), drop);
    list.first = keep;
  }
}

int PageTables::rows_with_pages(const Sequence& s, int rows) const {
  for (std::size_t i = 0; i < sets_.size(); ++i) {
    const std::int64_t end = (static_cast<std::int64_t>(s.pages[i].end()) + sets_[i].pool.available()) * page_size_;
    rows = static_cast<int>(std::min<std::int64_t>(rows, end - s.kv_tokens));
  }
  return std::max(rows, 0);
}

bool PageTables::pages_coming(const Sequence& s) const {
  for (std::size_t i = 0; i < sets_.size(); ++i) {
    const PagePool& pool = sets_[i].pool;
    const bool lacks = (s.pages[i].end() + pool.available()) * page_size_ <= s.kv_tokens;
    if (lacks && pool.fenced() == 0) return false;
  }
  return true;
}

void PageTables::extend(Sequence& s, int end) {
  for (std::size_t i = 0; i < sets_.size(); ++i) {
    while (s.pages[i].end() * page_size_ < end) {
      const int page = sets_[i].pool.acquire();
      CHECK(page >= 0, "no page in KV set {} for position {}", i, s.pages[i].end() * page_size_);
      s.pages[i].pages.push_back(page);
    }
  }
}

void PageTables::publish(Sequence& s) {
  const int full = std::min(s.kv_tokens, static_cast<int>(s.tokens.size())) / page_size_;
  if (full <= s.published) return;
  extend_hashes(s);
  for (std::size_t i = 0; i < sets_.size(); ++i) {
    const PageList& list = s.pages[i];
    for (int page = std::max(s.published, list.first); page < std::min(full, list.end()); ++page) {
      sets_[i].pool.publish(list.pages[static_cast<std::size_t>(page - list.first)],
                            s.hashes[static_cast<std::size_t>(page)], tokens_of(s, page));
    }
  }
  s.published = full;
}

void PageTables::release(Sequence& s) {
  for (std::size_t i = 0; i < s.pages.size(); ++i) {
    // The last page first: of equally old pages the end of a prefix is evicted before its beginning.
    std::vector<int>& pages = s.pages[i].pages;
    for (auto page = pages.rbegin(); page != pages.rend(); ++page) sets_[i].pool.release(*page, s.last_step);
    s.pages[i] = {};
  }
  s.kv_tokens = 0;
  s.published = 0;
}

void PageTables::forget(const Sequence& s) {
  for (const PageHash& hash : s.hashes) {
    for (Set& set : sets_) set.pool.forget(hash);
  }
}

void PageTables::committed(std::uint64_t step) {
  for (Set& set : sets_) set.pool.committed(step);
}

int PageTables::pages_needed(const Sequence& s, int set, int length, int rows_max) const {
  const auto at = static_cast<std::size_t>(set);
  const int held = at < s.pages.size() ? static_cast<int>(s.pages[at].pages.size()) : 0;
  const int end = at < s.pages.size() ? s.pages[at].end() : 0;
  int needed = std::max(0, pages_of(length) - end);
  if (sets_[at].window != 0) {
    const int rows = std::min(rows_max, std::max(1, length - s.kv_tokens));
    // A pool that holds less than a chunk's pages makes the chunks smaller.
    const int most = std::min(windowed_pages_max(sets_[at].window, rows, page_size_), sets_[at].pool.total());
    needed = std::min(needed, std::max(0, most - held));
  }
  return needed;
}

void PageTables::check_invariant() const {
  for (const Set& set : sets_) set.pool.check_invariant();
}

}  // namespace rose
