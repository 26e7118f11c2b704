// Files as a loader needs them: regular files only, exact reads, errors that name the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace rose {

// A regular file open for reading. Every failure is a StartError that begins with the path.
class File {
 public:
  explicit File(std::string path);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }  // when opened

  // All of [offset, offset + bytes), or StartError. Safe from several threads. read(2) rather than a mapping: a file
  // that shrinks while it is read is then an error and not a SIGBUS.
  void read(std::uint64_t offset, std::size_t bytes, void* to) const;

  int descriptor() const { return descriptor_; }

 private:
  std::string path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

// A whole file, mapped read-only. The file must not shrink while it is mapped.
class Mapping {
 public:
  explicit Mapping(const File& file);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(address_), size_}; }

 private:
  void* address_ = nullptr;
  std::size_t size_ = 0;
};

// The whole of a small file; StartError when it is larger than bytes_max.
std::string read_small_file(const std::string& path, std::size_t bytes_max);

bool file_exists(const std::string& path);  // a regular file, following links

}  // namespace rose
