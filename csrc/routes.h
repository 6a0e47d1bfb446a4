// Which experts each token of a step goes to, how much each counts, and the (token, expert) pairs
// sorted by expert, so that an expert's rows lie together.
#pragma once

#include <cstdint>
#include <vector>

namespace octavo {

inline constexpr int64_t kMostExperts = 2048;

enum class Scoring {
  softmax,         // over all experts
  softmax_of_top,  // over those chosen, which are chosen by their logits
  sigmoid,
};

// Of a group of experts: its largest choice, or the sum of its two largest.
enum class GroupScore { max, top2 };

// Chooses top_k experts by score + bias, of the top_groups best groups; they count by their score.
struct Router {
  int64_t experts = 0;  // at most kMostExperts; a whole number of groups
  int64_t top_k = 1;    // at most the experts of top_groups groups
  Scoring scoring = Scoring::softmax;
  bool normalise = false;  // weights sum to `scale`
  float eps = 1e-20f;      // added to the sum by which they are divided
  float scale = 1;
  std::vector<float> bias;  // [experts], or empty
  int64_t groups = 1;
  int64_t top_groups = 1;
  GroupScore group_score = GroupScore::max;

  // Of one token's logits [experts], its experts in ascending order and their weights, both
  // [top_k]. Of equal choices the lower id wins; what is no number loses.
  void choose(const float* logits, int32_t* chosen, float* weights) const;
};

// Adjacent pairs of one expert.
struct ExpertSpan {
  int64_t expert;
  int64_t row, rows;     // places row .. row + rows - 1
  int64_t first, spans;  // the expert's spans are first .. first + spans - 1
};

// A step's pairs. Pair t * top_k + i is token t's i-th expert; a pair's place is its rank by
// expert, then by token.
class Routes {
 public:
  Routes(int64_t experts, int64_t top_k);

  int64_t experts() const { return static_cast<int64_t>(next_.size()); }
  int64_t token(int64_t place) const { return sorted[place] / top_k; }
  float weight(int64_t place) const { return weights[sorted[place]]; }

  // Make room for so many tokens.
  void fit(int64_t tokens);
  // Fill places, sorted and spans, these of at most `most` rows, by `chosen`.
  void sort(int64_t most);

  const int64_t top_k;
  int64_t pairs = 0;            // in the step at hand
  std::vector<int32_t> chosen;  // by pair: its expert
  std::vector<float> weights;   // by pair
  std::vector<int32_t> places;  // by pair
  std::vector<int32_t> sorted;  // by place: its pair
  std::vector<ExpertSpan> spans;      // by expert; one that no token goes to has none

 private:
  std::vector<int64_t> next_;  // by expert, while sorting: the place of its next pair
};

}  // namespace octavo
