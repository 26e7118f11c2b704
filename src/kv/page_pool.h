// Host bookkeeping of the pages of one KV set: who uses which page, and which content can be found again.
//
//   live    somebody holds a reference
//   fenced  nobody does, but a step that names the page has not been committed yet
//   cached  nobody does; the content has a hash and can be shared again; evicted least recently used first
//   free    nobody does, and the content means nothing
//
//   live + fenced + cached + free = total, always (check_invariant).
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "kv/page_hash.h"

namespace rose {

class PagePool {
 public:
  // keep_cached false: content is shared among live sequences only and forgotten with the last reference.
  PagePool(int pages, int page_size, bool keep_cached);

  // A page nobody else uses, with one reference: a free one or, failing that, the least recently used cached one, whose
  // content is then forgotten. -1: every page is live or fenced.
  int acquire();

  // The page with this content, with a reference more; -1: unknown. `tokens` (page_size of them) are compared.
  int share(const PageHash& hash, std::span<const std::int32_t> tokens);
  bool contains(const PageHash& hash, std::span<const std::int32_t> tokens) const { return find(hash, tokens) >= 0; }

  // One reference less. `last_step` is the last step that names the page on behalf of this reference (0: none): the
  // page is not reused before that step has been committed.
  void release(int page, std::uint64_t last_step);
  // Every step up to `step` has been committed.
  void committed(std::uint64_t step);

  // The live page's content is complete and never written again. Where another page already has the content, nothing
  // happens: one is enough.
  void publish(int page, const PageHash& hash, std::span<const std::int32_t> tokens);
  // The content of this name must not be found again.
  void forget(const PageHash& hash);

  int total() const { return static_cast<int>(pages_.size()); }
  int live() const { return live_; }
  int fenced() const { return static_cast<int>(fenced_.size()); }
  int cached() const { return cached_; }
  int free() const { return static_cast<int>(free_.size()); }
  int available() const { return free() + cached_; }  // what acquire() can give
  int references(int page) const { return pages_.at(static_cast<std::size_t>(page)).references; }

  // Recounts everything; O(pages).
  void check_invariant() const;

 private:
  enum class State : std::uint8_t { kFree, kLive, kFenced, kCached };
  struct Page {
    State state = State::kFree;
    int references = 0;
    bool has_hash = false;
    PageHash hash;
    std::uint64_t fence = 0;
    int older = -1, newer = -1;  // the cached pages' list
  };

  Page& at(int page);
  int find(const PageHash& hash, std::span<const std::int32_t> tokens) const;
  std::span<std::int32_t> tokens_of(int page);
  std::span<const std::int32_t> tokens_of(int page) const;
  void retire(int page);  // no reference, no fence: cached or free
  void drop_hash(int page);
  void list_append(int page);
  void list_remove(int page);

  int page_size_;
  bool keep_cached_;
  std::uint64_t committed_ = 0;
  std::vector<Page> pages_;
  std::vector<std::int32_t> tokens_;  // [pages, page_size] of hashed pages
  std::vector<int> free_;
  std::vector<int> fenced_;
  std::unordered_map<PageHash, int> by_hash_;
  int oldest_ = -1, newest_ = -1;
  int live_ = 0;
  int cached_ = 0;
};

}  // namespace rose
