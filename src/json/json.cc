#include "json/json.h"

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <tuple>
#include <vector>

#include "json/locate.h"

namespace rose::json {
namespace {

using boost::json::error_code;
using Chars = boost::json::string_view;

struct Key {
  std::size_t hash;
  std::string_view text;
  std::uint32_t ordinal;  // among all keys of the text, in order of appearance
};

// The later key of the earliest pair of equal ones. Sorting keeps this O(n log n) for any keys; a hash table would be
// quadratic for keys chosen to collide.
std::optional<std::uint32_t> find_duplicate(Key* begin, Key* end) {
  constexpr std::ptrdiff_t kFewKeys = 8;
  std::optional<std::uint32_t> first;
  const auto note = [&](std::uint32_t ordinal) { first = std::min(first.value_or(ordinal), ordinal); };
  const auto same = [](const Key& a, const Key& b) { return a.hash == b.hash && a.text == b.text; };
  if (end - begin <= kFewKeys) {
    for (Key* a = begin; a < end; ++a) {
      for (Key* b = begin; b < a; ++b) {
        if (same(*a, *b)) note(a->ordinal);
      }
    }
    return first;
  }
  std::sort(begin, end, [](const Key& a, const Key& b) {
    if (a.hash != b.hash) return a.hash < b.hash;
    return std::tie(a.text, a.ordinal) < std::tie(b.text, b.ordinal);
  });
  for (Key* a = begin; a + 1 < end; ++a) {
    if (same(a[0], a[1])) note(a[1].ordinal);
  }
  return first;
}

// Receives Boost's parsing events and builds the value. What Boost has no error code for is left in the public fields.
class Builder {
 public:
  static constexpr std::size_t max_object_size = Object::max_size();
  static constexpr std::size_t max_array_size = Array::max_size();
  static constexpr std::size_t max_key_size = boost::json::string::max_size();
  static constexpr std::size_t max_string_size = boost::json::string::max_size();

  Builder(std::string_view text, std::size_t object_keys_max) : text_(text), object_keys_max_(object_keys_max) {}

  Value release() {
    CHECK(values_.size() == 1);
    return std::move(values_.back());
  }

  std::optional<std::uint32_t> duplicate;
  bool too_many_keys = false;
  bool number_too_large = false;

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_array_begin(error_code&) { return true; }
  bool on_array_end(std::size_t n, error_code&) {
    Array array;
    array.reserve(n);
    for (auto value = values_.end() - static_cast<std::ptrdiff_t>(n); value != values_.end(); ++value) {
      array.push_back(std::move(*value));
    }
    values_.resize(values_.size() - n);
    values_.emplace_back(std::move(array));
    return true;
  }
  bool on_object_begin(error_code&) {
    objects_.push_back(keys_.size());
    return true;
  }
  bool on_object_end(std::size_t n, error_code& ec) {
    const std::size_t first = objects_.back();
    Object object = take_object(keys_.data() + first, n);
    duplicate = find_duplicate(keys_.data() + first, keys_.data() + first + n);
    if (duplicate) return stop(ec);
    keys_.resize(first);
    objects_.pop_back();
    if (objects_.empty()) escaped_keys_.clear();
    values_.emplace_back(std::move(object));
    return true;
  }
  bool on_key_part(Chars s, std::size_t, error_code&) {
    partial_.append(s.data(), s.size());
    return true;
  }
  bool on_key(Chars s, std::size_t, error_code& ec) {
    if (keys_.size() - objects_.back() >= object_keys_max_) {
      too_many_keys = true;
      return stop(ec);
    }
    std::string_view key(s.data(), s.size());
    // A key with an escape arrives in the parser's own short-lived buffer.
    if (!partial_.empty() || !inside_text(s.data())) {
      partial_.append(s.data(), s.size());
      key = escaped_keys_.emplace_back(std::move(partial_));
      partial_.clear();
    }
    keys_.push_back({std::hash<std::string_view>{}(key), key, keys_seen_++});
    return true;
  }
  bool on_string_part(Chars s, std::size_t, error_code&) {
    partial_.append(s.data(), s.size());
    return true;
  }
  bool on_string(Chars s, std::size_t, error_code&) {
    if (partial_.empty()) {
      values_.emplace_back(s);
      return true;
    }
    partial_.append(s.data(), s.size());
    values_.emplace_back(Chars(partial_));
    partial_.clear();
    return true;
  }
  bool on_number_part(Chars, error_code&) { return true; }
  bool on_int64(std::int64_t i, Chars, error_code&) {
    values_.emplace_back(i);
    return true;
  }
  bool on_uint64(std::uint64_t u, Chars, error_code&) {
    values_.emplace_back(u);
    return true;
  }
  // Boost 1.81 keeps 53 bits of the digits and scales them, which can miss the nearest double.
  bool on_double(double rough, Chars s, error_code& ec) {
    double exact = 0;
    const auto [end, problem] = std::from_chars(s.data(), s.data() + s.size(), exact);
    if (problem == std::errc::result_out_of_range) {
      if (std::abs(rough) > 1) {
        number_too_large = true;
        return stop(ec);
      }
      exact = 0;
    } else {
      CHECK(problem == std::errc() && end == s.data() + s.size(), "number \"{}\"",
            std::string_view(s.data(), s.size()));
    }
    values_.emplace_back(exact);
    return true;
  }
  bool on_bool(bool b, error_code&) {
    values_.emplace_back(b);
    return true;
  }
  bool on_null(error_code&) {
    values_.emplace_back(nullptr);
    return true;
  }
  bool on_comment_part(Chars, error_code&) { return true; }
  bool on_comment(Chars, error_code&) { return true; }

 private:
  static bool stop(error_code& ec) {
    ec = boost::json::error::input_error;
    return false;
  }
  // The last n values with these keys. Boost's table has one bucket per reserved place and takes an FNV hash modulo
  // their number, salted by the table's address. With an even number the low bits decide, which a sender can predict:
  // 65,536 chosen keys (800 KB) took 5.8 s, against 13 ms for others. Modulo an odd number the address's random bits
  // count.
  Object take_object(const Key* keys, std::size_t n) {
    Object object;
    object.reserve(n | 1);
    Value* values = values_.data() + values_.size() - n;
    for (std::size_t i = 0; i < n; ++i) {
      object.emplace(Chars(keys[i].text.data(), keys[i].text.size()), std::move(values[i]));
    }
    values_.resize(values_.size() - n);
    return object;
  }
  bool inside_text(const char* p) const {
    return !std::less<>{}(p, text_.data()) && !std::less<>{}(text_.data() + text_.size(), p);
  }

  std::string_view text_;
  std::size_t object_keys_max_;
  std::vector<Value> values_;         // finished, not yet part of a finished array or object
  std::vector<Key> keys_;             // of all open objects, innermost last
  std::vector<std::size_t> objects_;  // per open object: its first key in keys_
  std::string partial_;               // a key or string of which more is to come
  std::deque<std::string> escaped_keys_;
  std::uint32_t keys_seen_ = 0;
};

RequestError invalid(std::size_t offset, std::string_view reason) {
  return {400, fmt::format("invalid JSON at byte {}: {}", offset, reason)};
}

RequestError explain(std::string_view text, std::size_t stopped_at, const error_code& ec, const Builder& builder,
                     const Limits& limits) {
  if (builder.duplicate) {
    const StringSpan key = nth_key(text, *builder.duplicate);
    return invalid(key.begin, fmt::format("duplicate key {}", shown(text.substr(key.begin, key.end - key.begin))));
  }
  if (builder.too_many_keys) {
    return invalid(stopped_at, fmt::format("more than {} keys in one object", limits.object_keys_max));
  }
  if (builder.number_too_large || ec == boost::json::error::exponent_overflow) {
    return invalid(number_begin(text, stopped_at), "number out of range");
  }
  if (ec == boost::json::error::too_deep) {
    return invalid(stopped_at, fmt::format("nested deeper than {} levels", limits.depth_max));
  }
  if (const auto fault = string_fault(text, stopped_at)) return invalid(fault->offset, fault->reason);
  if (stopped_at >= text.size()) return invalid(text.size(), "the text ends too early");
  return invalid(stopped_at, fmt::format("unexpected {}", shown_byte(text[stopped_at])));
}

}  // namespace

Result<Value> parse(std::string_view text, const Limits& limits) {
  CHECK(limits.depth_max > 0);
  if (text.size() > limits.bytes_max) {
    return RequestError{413,
                        fmt::format("JSON of {} bytes is longer than the {} allowed", text.size(), limits.bytes_max)};
  }
  boost::json::parse_options options;
  options.max_depth = static_cast<std::size_t>(limits.depth_max);
  boost::json::basic_parser<Builder> parser(options, text, limits.object_keys_max);
  error_code ec;
  const std::size_t used = parser.write_some(false, text.data(), text.size(), ec);
  if (ec) return explain(text, used, ec, parser.handler(), limits);
  if (used < text.size()) return invalid(used, fmt::format("unexpected {} after the value", shown_byte(text[used])));
  return parser.handler().release();
}

}  // namespace rose::json
