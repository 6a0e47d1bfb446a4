// Memory for weights, KV pages and activations: on 2 MiB huge pages where the system grants them,
// so that streaming through it costs few TLB misses. Zero at first; untouched pages take no RAM.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

namespace octavo {

class Buffer {
 public:
  Buffer() = default;

  // Raises std::bad_alloc where the address space is not to be had.
  explicit Buffer(size_t bytes) : size_(bytes) {
    if (bytes == 0) return;
    const size_t room = bytes + kHuge;
    if (room < bytes) throw std::bad_alloc();
    base_ = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base_ == MAP_FAILED) throw std::bad_alloc();
    mapped_ = room;
    const uintptr_t start = (reinterpret_cast<uintptr_t>(base_) + kHuge - 1) & ~(kHuge - 1);
    data_ = reinterpret_cast<uint8_t*>(start);
#if defined(MADV_HUGEPAGE)
    if (bytes >= kHuge) madvise(data_, bytes & ~(kHuge - 1), MADV_HUGEPAGE);
#endif
  }

  // A part of `whole`, which stays as long as its parts do.
  Buffer(std::shared_ptr<Buffer> whole, size_t offset, size_t bytes)
      : data_(whole->data_ + offset), size_(bytes), whole_(std::move(whole)) {}

  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer() {
    if (mapped_ > 0) munmap(base_, mapped_);
  }

  size_t size() const { return size_; }

  template <class T = uint8_t>
  T* data() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  static constexpr uintptr_t kHuge = 2 << 20;

  void swap(Buffer& other) {
    std::swap(base_, other.base_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(mapped_, other.mapped_);
    std::swap(whole_, other.whole_);
  }

  void* base_ = nullptr;
  uint8_t* data_ = nullptr;
  size_t size_ = 0;    // asked for
  size_t mapped_ = 0;  // with room to align; 0 where it is a part
  std::shared_ptr<Buffer> whole_;
};

}  // namespace octavo
