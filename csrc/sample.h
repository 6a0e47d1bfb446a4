// From logits to one token a row: edits, penalties, temperature, min_p, top_k, top_p, one uniform;
// and the logprobs of the logits as they came. A row's result depends on that row alone, bit for
// bit.
//
// min_p and top_p act on weights relative to the likeliest token's, top_k on logits; equals at a
// cut survive together. The uniform is inverted over the survivors in order of token id: their
// weights are fp32, summed in float64 over tiles of 1024 and, within the tile that is hit, one by
// one.
#pragma once

#include <cstdint>

#include "pool.h"

namespace octavo {

// The following are all float64, so that rows of them are one array in Python each.

// How one row wants to be drawn.
struct Controls {
  double temperature;  // 0 is greedy: the first of the largest logits
  double min_p;        // 0 is off
  double top_k;        // 0 is off
  double top_p;        // 1 is off
  double noise;        // uniform in [0, 1)
  double logprobs;     // how many likeliest tokens to tell; -1: not even the drawn token's logprob
  double repetition;   // divides positive logits of tokens known, multiplies others; 1 is off
  double frequency;    // taken from a token's logit for each time it was generated
  double presence;     // taken once from the logit of each token generated
  double known;        // where in SampleJob::tokens the row's tokens begin: the prompt,
  double generated;    // then what was generated,
  double end;
};

// A number to add to a logit before anything else.
struct Edit {
  double row;
  double token;
  double shift;
};

struct Drawn {
  double token;    // -1 where the peak is not finite
  double peak;     // the largest logit after edits and penalties; NaN if any is
  double logprob;  // of the token; this and rank only where they are asked for
  double rank;     // of the token, from 1
};

struct Likely {
  double token;
  double logprob;
};

struct SampleJob {
  int64_t rows;
  int64_t vocab;
  const float* logits;       // [rows][vocab]
  const Controls* controls;  // [rows]
  const int32_t* tokens;     // that rows with penalties know
  const Edit* edits;         // by row
  int64_t num_edits;
  Drawn* drawn;              // [rows]
  Likely* likely;            // [rows][width], likeliest first, equals by lower id
  int64_t width;             // at least what any row asks for
};

void sample(Team& team, const SampleJob& job);

}  // namespace octavo
