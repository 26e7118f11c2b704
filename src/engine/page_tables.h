// Pages of the running sequences, in every KV set: what a sequence holds, may share, recycles and gives back. The
// scheduler decides who gets pages; this file knows how many, and which.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/sequence.h"
#include "kv/page_pool.h"

namespace rose {

struct PageSetLimits {
  int window = 0;  // visible positions, self included; 0: all
  int pages = 0;
};

// Logical pages of a windowed set that one sequence can hold at once, with chunks of up to `rows` rows.
int windowed_pages_max(int window, int rows, int page_size);

class PageTables {
 public:
  PageTables(const std::vector<PageSetLimits>& sets, int page_size, bool keep_cached, std::uint64_t secret);

  int page_size() const { return page_size_; }
  int sets() const { return static_cast<int>(sets_.size()); }
  const PagePool& pool(int set) const { return sets_.at(static_cast<std::size_t>(set)).pool; }
  PageHash root(std::string_view salt) const { return root_hash(secret_, salt); }

  // Shares the longest cached prefix of s.tokens, at most all but the last, and sets s.kv_tokens to its length. A
  // prefix counts only where every set still has what the next row will see: all pages of it, or those that reach into
  // the window before its end. (docs/decisions/0004-prefix-cache-of-windowed-layers.md)
  void share_prefix(Sequence& s);

  // Gives back pages that no row from s.kv_tokens on can see.
  void recycle(Sequence& s);
  // How many of `rows` new rows have pages, counting those that could be acquired now.
  int rows_with_pages(const Sequence& s, int rows) const;
  // True when every set that has no page for the next row of s gets one back as soon as steps in flight are committed.
  bool pages_coming(const Sequence& s) const;
  // Acquires pages for positions up to `end`; there must be enough.
  void extend(Sequence& s, int end);

  // Offers full pages of known tokens to others.
  void publish(Sequence& s);
  // Gives back everything; s starts again from position 0.
  void release(Sequence& s);
  // What s computed must not be shared: its logits were not numbers.
  void forget(const Sequence& s);
  void committed(std::uint64_t step);

  // Pages that s still needs to hold all of its first `length` positions, as far as the windows let it.
  int pages_needed(const Sequence& s, int set, int length, int rows_max) const;

  void check_invariant() const;

 private:
  struct Set {
    int window;
    PagePool pool;
  };
  int first_visible_page(const Set& set, int position) const;
  int pages_of(int positions) const { return (positions + page_size_ - 1) / page_size_; }
  std::span<const std::int32_t> tokens_of(const Sequence& s, int page) const;
  void extend_hashes(Sequence& s) const;
  int longest_prefix(const Sequence& s) const;  // in pages

  std::vector<Set> sets_;
  int page_size_;
  std::uint64_t secret_;
};

}  // namespace rose
