// Seconds that only go forward.
#pragma once

#include <chrono>

namespace octavo {

inline double now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(time).count();
}

}  // namespace octavo
