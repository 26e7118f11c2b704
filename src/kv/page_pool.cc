#include "kv/page_pool.h"

#include <algorithm>

#include "base/check.h"

namespace rose {

PagePool::PagePool(int pages, int page_size, bool keep_cached) : page_size_(page_size), keep_cached_(keep_cached) {
  CHECK(pages > 0 && page_size > 0, "{} pages of {}", pages, page_size);
  pages_.resize(static_cast<std::size_t>(pages));
  tokens_.resize(pages_.size() * static_cast<std::size_t>(page_size));
  free_.reserve(pages_.size());
  for (int page = pages - 1; page >= 0; --page) free_.push_back(page);  // the lowest page is handed out first
}

PagePool::Page& PagePool::at(int page) {
  CHECK(page >= 0 && page < total(), "page {} of {}", page, total());
  return pages_[static_cast<std::size_t>(page)];
}

std::span<std::int32_t> PagePool::tokens_of(int page) {
  const auto size = static_cast<std::size_t>(page_size_);
  return std::span(tokens_).subspan(static_cast<std::size_t>(page) * size, size);
}

std::span<const std::int32_t> PagePool::tokens_of(int page) const {
  const auto size = static_cast<std::size_t>(page_size_);
  return std::span(tokens_).subspan(static_cast<std::size_t>(page) * size, size);
}

int PagePool::acquire() {
  int page = -1;
  if (!free_.empty()) {
    page = free_.back();
    free_.pop_back();
  } else if (oldest_ >= 0) {
    page = oldest_;
    list_remove(page);
    drop_hash(page);
  } else {
    return -1;
  }
  Page& p = at(page);
  CHECK(p.references == 0 && !p.has_hash && p.fence <= committed_, "page {} was handed out while in use", page);
  p.state = State::kLive;
  p.references = 1;
  ++live_;
  return page;
}

int PagePool::find(const PageHash& hash, std::span<const std::int32_t> tokens) const {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end() || !std::ranges::equal(tokens_of(found->second), tokens)) return -1;
  return found->second;
}

int PagePool::share(const PageHash& hash, std::span<const std::int32_t> tokens) {
  const int page = find(hash, tokens);
  if (page < 0) return -1;
  Page& p = at(page);
  if (p.state == State::kCached) list_remove(page);
  if (p.state == State::kFenced) std::erase(fenced_, page);
  if (p.state != State::kLive) ++live_;
  p.state = State::kLive;
  ++p.references;
  return page;
}

void PagePool::release(int page, std::uint64_t last_step) {
  Page& p = at(page);
  CHECK(p.state == State::kLive && p.references > 0, "page {} was released with {} references", page, p.references);
  p.fence = std::max(p.fence, last_step);
  if (--p.references > 0) return;
  --live_;
  if (p.fence > committed_) {
    p.state = State::kFenced;
    fenced_.push_back(page);
  } else {
    retire(page);
  }
}

void PagePool::committed(std::uint64_t step) {
  CHECK(step >= committed_, "step {} was committed after step {}", step, committed_);
  committed_ = step;
  const auto kept =
      std::stable_partition(fenced_.begin(), fenced_.end(), [&](int page) { return at(page).fence > committed_; });
  const std::vector<int> retired(kept, fenced_.end());
  fenced_.erase(kept, fenced_.end());
  for (const int page : retired) retire(page);
}

void PagePool::retire(int page) {
  Page& p = at(page);
  if (p.has_hash && !keep_cached_) drop_hash(page);
  if (p.has_hash) {
    p.state = State::kCached;
    list_append(page);
  } else {
    p.state = State::kFree;
    free_.push_back(page);
  }
}

void PagePool::publish(int page, const PageHash& hash, std::span<const std::int32_t> tokens) {
  Page& p = at(page);
  CHECK(p.state == State::kLive, "page {} was published while not live", page);
  CHECK(tokens.size() == static_cast<std::size_t>(page_size_), "a page of {} tokens", tokens.size());
  if (p.has_hash || !by_hash_.emplace(hash, page).second) return;
  p.has_hash = true;
  p.hash = hash;
  std::ranges::copy(tokens, tokens_of(page).begin());
}

void PagePool::forget(const PageHash& hash) {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end()) return;
  const int page = found->second;
  drop_hash(page);
  if (at(page).state == State::kCached) {
    list_remove(page);
    retire(page);
  }
}

void PagePool::drop_hash(int page) {
  Page& p = at(page);
  CHECK(p.has_hash && by_hash_.erase(p.hash) == 1, "page {} has no entry to forget", page);
  p.has_hash = false;
}

void PagePool::list_append(int page) {
  Page& p = at(page);
  p.older = newest_;
  p.newer = -1;
  (newest_ >= 0 ? at(newest_).newer : oldest_) = page;
  newest_ = page;
  ++cached_;
}

void PagePool::list_remove(int page) {
  Page& p = at(page);
  (p.older >= 0 ? at(p.older).newer : oldest_) = p.newer;
  (p.newer >= 0 ? at(p.newer).older : newest_) = p.older;
  p.older = p.newer = -1;
  --cached_;
}

void PagePool::check_invariant() const {
  int live = 0, listed = 0;
  std::size_t fenced = 0, cached = 0, free = 0, hashed = 0;
  for (std::size_t i = 0; i < pages_.size(); ++i) {
    const Page& p = pages_[i];
    CHECK((p.state == State::kLive) == (p.references > 0), "page {} has {} references", i, p.references);
    CHECK(p.state != State::kFenced || p.fence > committed_, "page {} waits for step {}, committed is {}", i, p.fence,
          committed_);
    CHECK(p.state != State::kCached || p.has_hash, "page {} is cached without a name", i);
    CHECK(p.state != State::kFree || !p.has_hash, "page {} is free and still has a name", i);
    if (p.has_hash) {
      const auto found = by_hash_.find(p.hash);
      CHECK(found != by_hash_.end() && found->second == static_cast<int>(i), "page {} cannot be found by its name", i);
      ++hashed;
    }
    live += p.state == State::kLive;
    fenced += p.state == State::kFenced;
    cached += p.state == State::kCached;
    free += p.state == State::kFree;
  }
  for (int page = oldest_; page >= 0; page = pages_[static_cast<std::size_t>(page)].newer) ++listed;
  CHECK(live == live_ && fenced == fenced_.size() && free == free_.size() && static_cast<int>(cached) == cached_ &&
            listed == cached_ && hashed == by_hash_.size(),
        "live {}/{} fenced {}/{} cached {}/{} listed {} free {}/{} hashed {}/{}", live, live_, fenced, fenced_.size(),
        cached, cached_, listed, free, free_.size(), hashed, by_hash_.size());
}

}  // namespace rose
