#include "weights/partial_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/result.h"
#include "weights/rose_writer.h"

namespace rose {
namespace {

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw StartError(fmt::format("{}: {}: {}", path, what, std::strerror(errno)));
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

void check_room(const std::string& folder, std::uint64_t bytes) {
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) != 0) fail(folder, "cannot be written to");
  const std::uint64_t room = static_cast<std::uint64_t>(status.f_bavail) * status.f_frsize;
  if (room < bytes) {
    throw StartError(fmt::format("{}: needs {:.2f} GiB, {:.2f} GiB are free", folder, static_cast<double>(bytes) / kGib,
                                 static_cast<double>(room) / kGib),
                     kExitDoesNotFit);
  }
}

}  // namespace

std::string partial_name(const std::string& path) { return path + ".partial"; }

PartialFile::PartialFile(std::string path, std::uint64_t bytes)
    : path_(std::move(path)), partial_(partial_name(path_)), folder_(folder_of(path_)) {
  // Opened before it is locked, and only then emptied: a file that another process is writing stays as it is.
  descriptor_ = ::open(partial_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (descriptor_ < 0) fail(partial_, "cannot be created");
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    ::close(descriptor_);
    throw StartError(fmt::format("{}: another conversion is writing it", partial_));
  }
  // The other writer may have renamed or removed it between open and lock.
  struct stat opened {};
  struct stat named {};
  if (::fstat(descriptor_, &opened) != 0 || ::stat(partial_.c_str(), &named) != 0 || opened.st_ino != named.st_ino ||
      opened.st_dev != named.st_dev) {
    ::close(descriptor_);
    throw StartError(fmt::format("{}: another conversion has just finished it", partial_));
  }
  try {
    if (::ftruncate(descriptor_, 0) != 0) fail(partial_, "cannot be emptied");
    check_room(folder_, bytes);
    if (::fallocate(descriptor_, 0, 0, static_cast<off_t>(bytes)) != 0) {
      if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL) fail(partial_, "its space cannot be taken");
      if (::ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) fail(partial_, "cannot be sized");
    }
  } catch (...) {
    remove_and_close();
    throw;
  }
}

PartialFile::~PartialFile() { remove_and_close(); }

void PartialFile::remove_and_close() noexcept {
  if (descriptor_ < 0) return;
  ::unlink(partial_.c_str());
  ::close(descriptor_);
  descriptor_ = -1;
}

void PartialFile::write(std::uint64_t offset, const void* from, std::size_t bytes) {
  const auto* in = static_cast<const std::byte*>(from);
  while (bytes > 0) {
    const ssize_t put = ::pwrite(descriptor_, in, std::min<std::size_t>(bytes, 1u << 30), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) fail(partial_, "cannot be written");
    in += put;
    offset += static_cast<std::uint64_t>(put);
    bytes -= static_cast<std::size_t>(put);
  }
}

void PartialFile::commit(bool replace) {
  if (::fsync(descriptor_) != 0) fail(partial_, "cannot be synced to disk");
  if (replace) {
    if (::rename(partial_.c_str(), path_.c_str()) != 0) fail(path_, "cannot be named");
  } else {
    // link refuses to replace a file that appeared meanwhile, which rename would not.
    if (::link(partial_.c_str(), path_.c_str()) != 0) {
      if (errno == EEXIST) throw StartError(fmt::format("{}: exists already (--force replaces it)", path_), kExitUsage);
      if (::rename(partial_.c_str(), path_.c_str()) != 0)
        fail(path_, "cannot be named");  // no links on this file system
    } else {
      ::unlink(partial_.c_str());
    }
  }
  const int folder = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    ::fsync(folder);
    ::close(folder);
  }
  ::close(descriptor_);
  descriptor_ = -1;
}

}  // namespace rose
