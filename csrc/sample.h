// From logits to one token a row: allowed tokens, edits, penalties, temperature, min_p, top_k,
// top_p, one uniform; and logprobs, of the logits as they came or of what was drawn from. A row's
// result depends on that row alone, bit for bit.
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
  // The same for all rows of a sequence:
  double temperature;  // 0 is greedy: the first of the largest logits
  double min_p;        // 0 is off
  double top_k;        // 0 is off
  double top_p;        // 1 is off
  double repetition;   // divides positive logits of tokens known, multiplies others; 1 is off
  double frequency;    // taken from a token's logit for each time it was generated
  double presence;     // taken once from the logit of each token generated
  double processed;    // 1: logprobs are of what is drawn from; 0: of the logits as they came
  // Of this row:
  double noise;     // uniform in [0, 1)
  double given;     // the token, if it is not to be drawn; else -1. No control acts on such a row
  double work;      // row of SampleJob::work to draw from; -1: the logits
  double logprobs;  // how many likeliest tokens to tell; -1: not even the token's logprob
  double likely;    // where in SampleJob::likely these begin; those named are behind them
  // Where in SampleJob::ids the row's begin, one kind behind the other:
  double known;      // the prompt, where there are penalties
  double generated;  // what was generated since
  double allowed;    // the only tokens that may be drawn; where there are none, all may
  double named;      // tokens to tell the logprobs of
  double end;

  double mask;  // row of SampleJob::masks; -1: any token may be drawn
};

// A number to add to a logit before any penalty.
struct Edit {
  double row;
  double token;
  double shift;
};

struct Drawn {
  double token;     // -1 where the peak is not finite
  double peak;      // the largest logit after edits and penalties; NaN if any is
  double logprob;   // of the token; what follows only where logprobs are asked for
  double rank;      // of the token, from 1
  double log_mass;  // log of the share of the distribution that was drawn from, if processed
  double told;      // likeliest tokens: fewer than asked where fewer survived
};

struct Likely {
  double token;
  double logprob;
};

struct SampleJob {
  int64_t rows;
  int64_t vocab;
  const float* logits;       // [rows][vocab]
  const float* work;         // [...][vocab]: logits that are drawn from in the place of those
  const Controls* controls;  // [rows]
  const uint32_t* masks;     // [...][words]: a bit for each token that may be drawn, lowest first
  int64_t words;             // tokens beyond them may not be drawn
  const int32_t* ids;        // tokens, see Controls
  const Edit* edits;         // by row
  int64_t num_edits;
  Drawn* drawn;              // [rows]
  Likely* likely;            // of each row, likeliest first, equals by lower id
};

void sample(Team& team, const SampleJob& job);

}  // namespace octavo
