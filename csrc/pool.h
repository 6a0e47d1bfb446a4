// Threads that run one job together, and the little they need to share it.
//
// A job is written once and run by every thread of the team; each() deals out its items as threads
// become free and ends with a barrier. Waiting spins for some microseconds, then sleeps in the
// kernel: a step loses nothing, and an idle pool costs nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "simd.h"

namespace octavo {

// A number to wait for. Who changes it calls the kernel only where somebody sleeps.
class Awaited {
 public:
  explicit Awaited(uint32_t value) : value_(value) {}

  uint32_t get() const { return value_.load(std::memory_order_acquire); }
  void set(uint32_t value) {
    value_.store(value);
    if (sleepers_.load() > 0) value_.notify_all();
  }

  // Until it is no longer `old`: looks so many times, then sleeps.
  void wait_while(uint32_t old, int looks);

 private:
  std::atomic<uint32_t> value_;
  std::atomic<int> sleepers_{0};
};

// What the threads of a pool share.
class Meeting {
 public:
  explicit Meeting(int threads) : threads_(threads) {}

  // Take `grain` items of those not taken yet, counted since barrier number `phase`.
  int64_t take(uint32_t phase, int64_t grain) {
    return next_[phase & 1].fetch_add(grain, std::memory_order_relaxed);
  }

  // Until all threads are here; `phase` counts the barriers that the caller has passed.
  void barrier(uint32_t phase);

  int threads() const { return threads_; }

 private:
  const int threads_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) Awaited phase_{0};
  alignas(64) std::atomic<int64_t> next_[2] = {};
};

// One thread's view of the team.
class Team {
 public:
  Team(Meeting& meeting, int thread) : meeting_(meeting), thread_(thread) {}

  int thread() const { return thread_; }
  int threads() const { return meeting_.threads(); }

  void barrier() { meeting_.barrier(phase_++); }

  // fn(item) for every item in [0, items), each by one thread, `grain` at a time, roughly in order.
  // Returns when all are done. Every thread of the team must call it with the same numbers.
  template <class F>
  void each(int64_t items, int64_t grain, F&& fn) {
    for (;;) {
      const int64_t begin = meeting_.take(phase_, grain);
      if (begin >= items) break;
      const int64_t end = begin + grain < items ? begin + grain : items;
      for (int64_t item = begin; item < end; item++) fn(item);
    }
    barrier();
  }

 private:
  Meeting& meeting_;
  const int thread_;
  uint32_t phase_ = 0;
};

// A fixed number of threads, started once. One job at a time, whoever hands it in.
class Pool {
 public:
  // Raises std::system_error where the system grants no more threads.
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()); }

  // Hand a job to every thread and return at once, after the one before, if it still runs. It must
  // not throw: the others would wait for it at a barrier, so the process ends.
  void start(std::function<void(Team&)> job);

  // Until the job is done.
  void wait();

  void run(std::function<void(Team&)> job) {
    start(std::move(job));
    wait();
  }

 private:
  void work(int thread);
  void stop();

  std::mutex starting_;
  Meeting meeting_;
  std::function<void(Team&)> job_;
  alignas(64) Awaited started_{0};  // jobs
  alignas(64) Awaited done_{0};     // jobs
  alignas(64) std::atomic<int> running_{0};   // threads still in the job
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace octavo
