#include "pool.h"

namespace octavo {
namespace {

constexpr int kSpins = 2000;  // some 20 to 50 microseconds

OCTAVO_INLINE void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Until `value` is no longer `old`.
template <class T>
void wait_while(const std::atomic<T>& value, T old) {
  for (int i = 0; i < kSpins; i++) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

void Meeting::barrier(uint32_t phase) {
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < threads_) {
    wait_while(phase_, phase);
    return;
  }
  // The last one here: nobody else can take items now, so the counter can start again.
  arrived_.store(0, std::memory_order_relaxed);
  next_[phase & 1].store(0, std::memory_order_relaxed);
  phase_.store(phase + 1, std::memory_order_release);
  phase_.notify_all();
}

Pool::Pool(int threads) : meeting_(threads) {
  workers_.reserve(threads);
  for (int i = 0; i < threads; i++) workers_.emplace_back([this, i] { work(i); });
}

Pool::~Pool() {
  stop_.store(true, std::memory_order_relaxed);
  started_.fetch_add(1, std::memory_order_release);
  started_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void Pool::start(std::function<void(Team&)> job) {
  wait();
  job_ = std::move(job);
  running_.store(threads(), std::memory_order_relaxed);
  started_.fetch_add(1, std::memory_order_release);
  started_.notify_all();
}

void Pool::wait() {
  for (int left; (left = running_.load(std::memory_order_acquire)) > 0;)
    running_.wait(left, std::memory_order_acquire);
}

void Pool::work(int thread) {
  Team team(meeting_, thread);
  for (uint32_t seen = 0;; seen++) {
    wait_while(started_, seen);
    if (stop_.load(std::memory_order_relaxed)) return;
    job_(team);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_all();
  }
}

}  // namespace octavo
