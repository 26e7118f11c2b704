// A file that is being written: under a name of its own until it is whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace rose {

class PartialFile {
 public:
  // Creates partial_name(path), `bytes` long, the disk space taken. Throws StartError when the folder is not there or
  // has too little room, or another process writes the same file.
  PartialFile(std::string path, std::uint64_t bytes);
  ~PartialFile();  // removes the partial file unless committed
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  void write(std::uint64_t offset, const void* from, std::size_t bytes);  // from several threads
  // Syncs the file, gives it its name and syncs the folder. Without `replace` an existing file is an error.
  void commit(bool replace);

 private:
  void remove_and_close() noexcept;

  std::string path_;
  std::string partial_;
  std::string folder_;
  int descriptor_ = -1;
};

}  // namespace rose
