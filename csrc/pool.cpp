#include "pool.h"

namespace octavo {
namespace {

constexpr int kLooks = 2000;  // at a barrier, some 20 to 50 microseconds

OCTAVO_INLINE void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

void Awaited::wait_while(uint32_t old, int looks) {
  for (int i = 0; i < looks; i++) {
    if (get() != old) return;
    pause();
  }
  // Who changes the value after this sees the sleeper; who did before is seen here.
  sleepers_.fetch_add(1);
  while (value_.load() == old) value_.wait(old);
  sleepers_.fetch_sub(1);
}

void Meeting::barrier(uint32_t phase) {
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < threads_) {
    phase_.wait_while(phase, kLooks);
    return;
  }
  // The last one here: nobody else can take items now, so the counter can start again.
  arrived_.store(0, std::memory_order_relaxed);
  next_[phase & 1].store(0, std::memory_order_relaxed);
  phase_.set(phase + 1);
}

Pool::Pool(int threads) : meeting_(threads) {
  workers_.reserve(threads);
  try {
    for (int i = 0; i < threads; i++) workers_.emplace_back([this, i] { work(i); });
  } catch (...) {
    stop();
    throw;
  }
}

Pool::~Pool() {
  wait();
  stop();
}

void Pool::stop() {
  stop_.store(true, std::memory_order_relaxed);
  started_.set(started_.get() + 1);
  for (std::thread& worker : workers_) worker.join();
}

void Pool::start(std::function<void(Team&)> job) {
  const std::lock_guard lock(starting_);
  wait();
  job_ = std::move(job);
  running_.store(threads(), std::memory_order_relaxed);
  started_.set(started_.get() + 1);
}

void Pool::wait() {
  for (uint32_t done; (done = done_.get()) != started_.get();) done_.wait_while(done, 0);
}

void Pool::work(int thread) {
  Team team(meeting_, thread);
  for (uint32_t seen = 0;; seen++) {
    started_.wait_while(seen, 0);  // who starts jobs needs the core between them
    if (stop_.load(std::memory_order_relaxed)) return;
    job_(team);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) done_.set(seen + 1);
  }
}

}  // namespace octavo
