#include "roofline.h"

#include <algorithm>
#include <cstring>

#include "block_dot.h"
#include "buffer.h"
#include "clock.h"
#include "pool.h"
#include "simd.h"

namespace octavo {
namespace {

// Accumulators: enough to hide an instruction's latency, few enough to stay in registers.
#if defined(__AVX512F__)
constexpr int CHAINS = 24;
#elif defined(__AVX2__)
constexpr int CHAINS = 12;
#else
constexpr int CHAINS = 2;  // of 16 lanes, so several registers each
#endif

constexpr int64_t ROUNDS = 1000;  // steps of every chain in one pass

// The compiler must not leave out what leads to `value`.
template <class T>
OCTAVO_INLINE void use(const T& value) {
  asm volatile("" : : "m"(value) : "memory");
}

// Passes a second of job(team, passes), which each thread runs: the best of several repetitions,
// of as many passes as take a tenth of `seconds`.
template <class Job>
double best_rate(int threads, double seconds, Job job) {
  Pool pool(threads);
  double best = 0, took = 0;
  const double end = now() + seconds;
  for (int64_t passes = 1; took < seconds / 10 || now() < end;) {
    if (took < seconds / 10) passes *= 2;
    const double start = now();
    pool.run([&](Team& team) { job(team, passes); });
    took = now() - start;
    best = std::max(best, static_cast<double>(passes) / took);
  }
  return best;
}

// Steps of chains that start with different numbers, as equal ones would be computed once.
template <class V, class Step>
OCTAVO_INLINE void run_chains(int64_t passes, Step step) {
  V chains[CHAINS];
  for (int i = 0; i < CHAINS; i++) chains[i] = V{} + static_cast<int8_t>(i);
  for (int64_t round = 0; round < passes * ROUNDS; round++) {
#pragma GCC unroll 32
    for (int i = 0; i < CHAINS; i++) chains[i] = step(chains[i]);
  }
  V all = chains[0];
  for (int i = 1; i < CHAINS; i++) all += chains[i];
  use(all);
}

void multiply_f32(int64_t passes) {
  const F32 a = splat(0.999f), b = splat(0.0005f);
  run_chains<F32>(passes, [&](F32 acc) { return fma(acc, a, b); });
}

#if defined(__AVX512BF16__)
void multiply_bf16(int64_t passes) {
  const U32 ones = U32{} + 0x3f803f80u;
  run_chains<F32>(passes, [&](F32 acc) { return dot_bf16(acc, ones, ones); });
}
#endif

#if defined(__AVX512VNNI__)
void multiply_int8(int64_t passes) {
  const __m512i ones = _mm512_set1_epi8(1);
  run_chains<U32>(passes, [&](U32 acc) {
    return (U32)_mm512_dpbusd_epi32((__m512i)acc, ones, ones);
  });
}
#elif defined(__AVX2__)
// Products of the chain itself: the compiler would do others once for all chains.
void multiply_int8(int64_t passes) {
  const I32 ones = (I32)(I8{} + 1);
  run_chains<I16>(passes, [&](I16 acc) { return add_products(acc, (I32)acc, ones); });
}

void multiply_int16(int64_t passes) {
  const I32 ones = (I32)(I16{} + 1);
  run_chains<I32>(passes, [&](I32 acc) { return add_pairs(acc, acc, ones); });
}
#endif

// Multiply-adds of one step of one chain.
int64_t lanes(Operand operand) {
  return operand == Operand::f32 ? W : operand == Operand::int8 ? 4 * W : 2 * W;
}

void multiply(Operand operand, int64_t passes) {
  if (operand == Operand::f32) multiply_f32(passes);
#if defined(__AVX512BF16__)
  if (operand == Operand::bf16) multiply_bf16(passes);
#endif
#if defined(__AVX2__)
  if (operand == Operand::int8) multiply_int8(passes);
#if !defined(__AVX512VNNI__)
  if (operand == Operand::int16) multiply_int16(passes);
#endif
#endif
}

constexpr int64_t STRIDE = 4 * sizeof(U32);  // read in one turn
constexpr int64_t AHEAD = 3072;              // bytes that are asked for early

void read(const uint8_t* from, int64_t bytes, int64_t passes) {
  U32 mixed[4] = {};
  for (int64_t pass = 0; pass < passes; pass++) {
    for (int64_t at = 0; at < bytes; at += STRIDE) {
      for (int64_t line = 0; line < STRIDE; line += 64)
        __builtin_prefetch(from + at + AHEAD + line);
      for (int i = 0; i < 4; i++) mixed[i] ^= load_as<U32>(from + at + i * sizeof(U32));
    }
  }
  const U32 all = mixed[0] ^ mixed[1] ^ mixed[2] ^ mixed[3];
  use(all);
}

}  // namespace

bool can_multiply(Operand operand) {
#if defined(__AVX512BF16__)
  if (operand == Operand::bf16) return true;
#endif
#if defined(__AVX2__)
  if (operand == Operand::int8) return true;
  if (operand == Operand::int16) return !WHOLE_BYTES;
#endif
  return operand == Operand::f32;
}

Operand operand_of(Form form) {
  switch (form) {
    case Form::f32:
      return Operand::f32;
    case Form::bf16:
      return Operand::bf16;
    case Form::q8:
      return Operand::int8;
    case Form::q16:
      return Operand::int16;
    default:
      return WHOLE_BYTES ? Operand::int8 : Operand::int16;
  }
}

double peak(Operand operand, int threads, double seconds) {
  const double rate = best_rate(
      threads, seconds, [&](Team&, int64_t passes) { multiply(operand, passes); });
  return rate * 2 * static_cast<double>(lanes(operand) * CHAINS * ROUNDS * threads);
}

double bandwidth(int64_t bytes, int threads, double seconds) {
  const int64_t part = std::max(bytes / threads / STRIDE, int64_t{1}) * STRIDE;
  const Buffer buffer(part * threads);
  std::memset(buffer.data(), 1, buffer.size());  // what was never written is one page of zeros
  const double rate = best_rate(threads, seconds, [&](Team& team, int64_t passes) {
    read(buffer.data() + team.thread() * part, part, passes);
  });
  return rate * static_cast<double>(part * threads);
}

}  // namespace octavo
