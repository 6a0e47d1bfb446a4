#include "experts.h"

#include <algorithm>

#include "row_ops.h"

namespace octavo {
namespace {

constexpr int64_t PANELS = 8;            // of an item at most
constexpr int64_t ITEMS_PER_THREAD = 8;  // at least, where there are so many panels
constexpr int64_t COLUMNS = 512;         // that are added up at a time; a multiple of W

// Some panels of an expert, and the rows that meet them.
struct Item {
  const ExpertSpan& span;
  int64_t panel, panels;

  int64_t column() const { return panel * PANEL; }
  int64_t columns() const { return panels * PANEL; }
};

// Spans x panels. Items of the same panels are neighbours, so that these come from memory once.
class Cut {
 public:
  Cut(const std::vector<ExpertSpan>& spans, int64_t panels, int64_t most, int threads)
      : spans_(spans), panels_(panels) {
    const int64_t all = panels * static_cast<int64_t>(spans.size());
    const int64_t group = std::clamp<int64_t>(all / (ITEMS_PER_THREAD * threads), 1, most);
    groups_ = (panels + group - 1) / group;
  }

  int64_t items() const { return groups_ * static_cast<int64_t>(spans_.size()); }

  Item item(int64_t index) const {
    const ExpertSpan& any = spans_[index / groups_];  // of the expert
    const int64_t local = index - any.first * groups_, group = local / any.spans;
    const int64_t panel = panels_ * group / groups_;
    return {spans_[any.first + local % any.spans], panel,
            panels_ * (group + 1) / groups_ - panel};
  }

 private:
  const std::vector<ExpertSpan>& spans_;
  int64_t panels_, groups_;
};

// c[r * ldc ..] := the item's outputs.
void multiply(const ExpertLinear& linear, const Item& item, const Forms& x, float* c,
              int64_t ldc) {
  const Packed& w = *linear.weight;
  const ExpertSpan& span = item.span;
  panel_product(w, item.panel, item.panels, x[static_cast<int>(linear.form())], span.row,
                span.rows, c, ldc);
  if (linear.bias.empty()) return;
  const int64_t n = std::min(item.columns(), w.n - item.column());
  for (int64_t r = 0; r < span.rows; r++)
    for (int64_t j = 0; j < n; j++) c[r * ldc + j] += linear.bias[item.column() + j];
}

// The outputs in c that `y` has room for, without those that fill the last panel.
void put(const Item& item, const float* c, int64_t ldc, const Rows& y) {
  const int64_t n = std::min(item.columns(), y.width - item.column());
  for (int64_t r = 0; r < item.span.rows; r++)
    std::copy_n(c + r * ldc, n, y.f32 + (item.span.row + r) * y.padded() + item.column());
}

void gated_item(const Expert& expert, const Gating& gating, const Item& item, const Forms& x,
                const Rows& y) {
  alignas(64) float c[kSpanRows * PANELS * PANEL];
  const int64_t width = item.columns(), ldc = 2 * width;
  multiply(expert.gated() ? expert.gate : expert.up, item, x, c, ldc);
  if (expert.gated()) multiply(expert.up, item, x, c + width, ldc);
  for (int64_t r = 0; r < item.span.rows; r++) {
    float* const up = c + r * ldc + width;
    if (!expert.gated()) std::fill_n(up, width, 1.f);
    apply(gating, c + r * ldc, up, width);
  }
  put(item, c, ldc, y);
}

void down_item(const Expert& expert, const Item& item, const Forms& x, const Rows& y) {
  alignas(64) float c[kSpanRows * PANELS * PANEL];
  multiply(expert.down, item, x, c, item.columns());
  put(item, c, item.columns(), y);
}

// Columns begin .. end - 1 of one token.
void add_up(const Routes& routes, int64_t token, bool weighted, const Rows& from, int64_t begin,
            int64_t end, float* y) {
  float sums[COLUMNS] = {};
  for (int64_t pair = token * routes.top_k; pair < (token + 1) * routes.top_k; pair++) {
    const float* row = from.f32 + routes.places[pair] * from.padded() + begin;
    const F32 weight = splat(weighted ? routes.weights[pair] : 1.f);
    for (int64_t j = 0; j < end - begin; j += W)
      store(sums + j, fma(weight, load(row + j), load(sums + j)));
  }
  for (int64_t j = begin; j < end; j++) y[j] += sums[j - begin];
}

// fn(place) for each pair, a few at a time: one is little work.
template <class F>
void each_place(Team& team, const Routes& routes, F&& fn) {
  team.each(routes.pairs, std::max<int64_t>(1, routes.pairs / (team.threads() * 4)), fn);
}

}  // namespace

void gather(Team& team, const Routes& routes, const std::vector<Form>& forms, const Forms& from,
            const Forms& to) {
  each_place(team, routes, [&](int64_t place) {
    for (Form form : forms) {
      const auto i = static_cast<int>(form);
      copy_row(to[i], place, from[i], routes.token(place));
    }
  });
}

void weigh(Team& team, const Routes& routes, const Rows& from, const Rows& to) {
  each_place(team, routes, [&](int64_t place) {
    const float weight = routes.weight(place);
    const float* row = from.f32 + routes.token(place) * from.padded();
    for (int64_t i = 0; i < from.width; i++) to.f32[place * to.padded() + i] = weight * row[i];
  });
}

void form(Team& team, const Routes& routes, const std::vector<Form>& forms, const Forms& rows) {
  const Rows& values = rows[static_cast<int>(Form::f32)];
  each_place(team, routes, [&](int64_t place) {
    for (Form form : forms)
      to_form(rows[static_cast<int>(form)], place, values.f32 + place * values.padded());
  });
}

void gate_and_up(Team& team, const Routes& routes, const std::vector<Expert>& experts,
                 const Gating& gating, const Forms& x, const Rows& y) {
  const Cut cut(routes.spans, experts[0].up.weight->panels(), PANELS / 2, team.threads());
  team.each(cut.items(), 1, [&](int64_t index) {
    const Item item = cut.item(index);
    gated_item(experts[item.span.expert], gating, item, x, y);
  });
}

void down(Team& team, const Routes& routes, const std::vector<Expert>& experts, const Forms& x,
          const Rows& y) {
  const Cut cut(routes.spans, experts[0].down.weight->panels(), PANELS, team.threads());
  team.each(cut.items(), 1, [&](int64_t index) {
    const Item item = cut.item(index);
    down_item(experts[item.span.expert], item, x, y);
  });
}

void add_up(Team& team, const Routes& routes, bool weighted, const Rows& from, float* y,
            int64_t stride) {
  const int64_t parts = (from.width + COLUMNS - 1) / COLUMNS;
  team.each(routes.pairs / routes.top_k * parts, 1, [&](int64_t index) {
    const int64_t token = index / parts, begin = index % parts * COLUMNS;
    add_up(routes, token, weighted, from, begin, std::min(begin + COLUMNS, from.width),
           y + token * stride);
  });
}

}  // namespace octavo
