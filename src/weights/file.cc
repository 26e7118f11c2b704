#include "weights/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/result.h"

namespace rose {
namespace {

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw StartError(fmt::format("{}: {}: {}", path, what, std::strerror(errno)));
}

}  // namespace

File::File(std::string path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO would otherwise hang the start
  if (descriptor_ < 0) fail(path_, "cannot be opened");
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    throw StartError(fmt::format("{}: not a regular file", path_));
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

File::~File() { ::close(descriptor_); }

void File::read(std::uint64_t offset, std::size_t bytes, void* to) const {
  // Linux moves at most 2 GiB a call.
  constexpr std::size_t kCallMax = 1u << 30;
  auto* out = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const ssize_t got = ::pread(descriptor_, out, std::min(bytes, kCallMax), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path_, "cannot be read");
    if (got == 0) throw StartError(fmt::format("{}: ends at byte {}, {} more were expected", path_, offset, bytes));
    out += got;
    offset += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
}

Mapping::Mapping(const File& file) : size_(static_cast<std::size_t>(file.size())) {
  if (size_ == 0) return;
  address_ = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (address_ == MAP_FAILED) fail(file.path(), "cannot be mapped");
}

Mapping::~Mapping() {
  if (address_ != nullptr) ::munmap(address_, size_);
}

std::string read_small_file(const std::string& path, std::size_t bytes_max) {
  const File file(path);
  if (file.size() > bytes_max) {
    throw StartError(fmt::format("{}: {} bytes, at most {} are accepted", path, file.size(), bytes_max));
  }
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, text.size(), text.data());
  return text;
}

bool file_exists(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

}  // namespace rose
