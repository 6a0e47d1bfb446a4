// A mixture of experts over the pairs of Routes, for all threads of a team: each expert's weights
// meet all its rows at once.
//
//   y[t] += sum over t's experts e of  weight * down_e(gating(gate_e(x[t]), up_e(x[t])))
//
// in steps that follow each other: gather, or weigh; gate_and_up; form; down; add_up. A pair's
// numbers depend on its token alone, and a token's sum is in the order of expert ids.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "gating.h"
#include "packed.h"
#include "pool.h"
#include "routes.h"
#include "rows.h"

namespace octavo {

// Rows of a span at most: what an item of its linears multiplies.
inline constexpr int64_t kSpanRows = 192;

struct ExpertLinear {
  std::shared_ptr<Packed> weight;
  std::vector<float> bias;  // [n], or empty

  Form form() const { return form_for(weight->format); }
};

struct Expert {
  ExpertLinear gate, up, down;  // gate and up have equal shapes, and those of all experts

  bool gated() const { return gate.weight != nullptr; }  // else gating(up(x), 1)
};

// The same rows in their forms, by Form; only those exist that are wanted.
using Forms = std::array<Rows, FORMS>;

// Row `place` of `to` := the row of its token in `from`, in each of `forms`.
void gather(Team& team, const Routes& routes, const std::vector<Form>& forms, const Forms& from,
            const Forms& to);

// Row `place` of `to` := the row of its token in `from`, in fp32, times the pair's weight.
void weigh(Team& team, const Routes& routes, const Rows& from, const Rows& to);

// Each pair's row in each of `forms`, of its fp32 values.
void form(Team& team, const Routes& routes, const std::vector<Form>& forms, const Forms& rows);

// y := gating(gate(x), up(x)), or gating(up(x), 1) without a gate, a row for each place.
void gate_and_up(Team& team, const Routes& routes, const std::vector<Expert>& experts,
                 const Gating& gating, const Forms& x, const Rows& y);

// y := down(x), a row for each place.
void down(Team& team, const Routes& routes, const std::vector<Expert>& experts, const Forms& x,
          const Rows& y);

// y[t * stride ..] += the rows of t's pairs, times their weights where `weighted`.
void add_up(Team& team, const Routes& routes, bool weighted, const Rows& from, float* y,
            int64_t stride);

}  // namespace octavo
