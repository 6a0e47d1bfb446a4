// Drawing one token from a row of logits, and how much of their distribution was drawn from.
#pragma once

#include <cstdint>
#include <memory>

#include "sample.h"
#include "select.h"

namespace octavo {

// What a thread needs to draw a row.
struct Scratch {
  explicit Scratch(int64_t vocab)
      : edited(new float[vocab]), values(new float[vocab]), weights(new float[vocab + W]),
        spare(new float[vocab]), ids(new int32_t[vocab]), groups(new float[tiles_of(vocab) * W]),
        sums(new double[tiles_of(vocab)]) {}

  std::unique_ptr<float[]> edited;   // a row's logits, where it has edits or penalties
  std::unique_ptr<float[]> values;   // candidates for the draw
  std::unique_ptr<float[]> weights;  // theirs
  std::unique_ptr<float[]> spare;    // for select.h
  std::unique_ptr<int32_t[]> ids;    // of candidates
  std::unique_ptr<float[]> groups;   // see select.h
  std::unique_ptr<double[]> sums;    // of a tile's weights
  std::unique_ptr<int32_t[]> uses;   // of a token in a row; all 0 between rows; made when needed
};

// What a row is drawn from: logits divided by a temperature. A token's weight is
// e^((logit - peak) / temperature).
struct Source {
  const float* logits;
  int64_t n;
  float peak;          // the largest
  double temperature;
  float floor;         // the smallest that survived the cuts
  double all;          // the sum of all weights; 0 where it was not needed
  double kept;         // of the survivors'
};

// The sum of the weights of n logits, and the sums of their tiles.
double mass(const float* logits, int64_t n, const Source& from, double* sums);

// The token that a row's controls draw. s.groups are those of the source's logits. Fills in what
// survived, and what is known of the sums.
int64_t draw(const Controls& c, Scratch& s, Source& from);

}  // namespace octavo
