// Result<T>: a value, or the error text that the caller will read. For a caller's mistakes only: our own mistakes are
// CHECKs, a start that cannot succeed (file, plan, memory) throws StartError, caught once in main.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace rose {

// `status` is the HTTP status the front end would answer with; `param` names the field at fault, `code` is OpenAI's
// machine-readable code. Both may be empty.
struct RequestError {
  int status = 400;
  std::string message;
  std::string param = {};
  std::string code = {};
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}             // NOLINT: conversion is the point
  Result(RequestError error) : value_(std::move(error)) {}  // NOLINT

  bool ok() const { return std::holds_alternative<T>(value_); }
  explicit operator bool() const { return ok(); }

  T& value() & {
    CHECK(ok(), "{}", error().message);
    return std::get<T>(value_);
  }
  const T& value() const& {
    CHECK(ok(), "{}", error().message);
    return std::get<T>(value_);
  }
  T&& value() && {
    CHECK(ok(), "{}", error().message);
    return std::get<T>(std::move(value_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const RequestError& error() const { return std::get<RequestError>(value_); }

 private:
  std::variant<T, RequestError> value_;
};

// Result<Ok> for operations that only succeed or fail.
struct Ok {};

// Process exit codes (0: done or drained, 1: failed while running).
enum ExitCode : int { kExitUsage = 2, kExitDoesNotFit = 3, kExitBadFiles = 4, kExitPortTaken = 5, kExitWatchdog = 6 };

// A start that cannot succeed: a bad file, plan or memory budget. `what()` says what was wrong and what would be right.
class StartError : public std::runtime_error {
 public:
  explicit StartError(const std::string& message, int exit_code = kExitBadFiles)
      : std::runtime_error(message), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

}  // namespace rose
