// Reads memory that may not be mapped.
//
// Errors:     none; a bad address makes Read return false.
// Position:   below op_maps.h, before a layout is trusted.
// Not handled: memory that another thread frees between Read and use.
#ifndef TOFU_MXNET_SAFE_READER_H_
#define TOFU_MXNET_SAFE_READER_H_

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace tofu {

// Reads through a pipe: the kernel answers a bad address with an error.
class SafeReader {
 public:
  SafeReader() : is_open_(pipe(ends_) == 0) {}
  SafeReader(const SafeReader&) = delete;
  SafeReader& operator=(const SafeReader&) = delete;
  ~SafeReader() {
    if (!is_open_) return;
    close(ends_[0]);
    close(ends_[1]);
  }

  bool Read(const void* from, void* to, size_t num_bytes) const {
    constexpr size_t kChunk = 4096;  // a pipe holds this much without a reader
    for (size_t done = 0; done < num_bytes; done += kChunk) {
      const size_t chunk = std::min(kChunk, num_bytes - done);
      if (!is_open_ || write(ends_[1], static_cast<const char*>(from) + done, chunk) !=
                           static_cast<ssize_t>(chunk)) {
        return false;
      }
      if (read(ends_[0], static_cast<char*>(to) + done, chunk) !=
          static_cast<ssize_t>(chunk)) {
        return false;
      }
    }
    return true;
  }

  bool TextIs(const void* address, const char* expected) const {
    std::vector<char> text(std::strlen(expected) + 1);
    return Read(address, text.data(), text.size()) &&
           std::memcmp(text.data(), expected, text.size()) == 0;
  }

 private:
  int ends_[2] = {-1, -1};
  bool is_open_;
};

}  // namespace tofu

#endif  // TOFU_MXNET_SAFE_READER_H_
