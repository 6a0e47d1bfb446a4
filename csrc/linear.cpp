// How a linear is cut into items for the threads, and what is done to the sums while they are hot.
#include "linear.h"

#include <algorithm>

#include "activation.h"

namespace octavo {
namespace {

constexpr int64_t ROWS = 192;            // of an item at most: a chunk of theirs stays in L2
constexpr int64_t PANELS = 8;            // of an item at most
constexpr int64_t ITEMS_PER_THREAD = 8;  // at least, where there are so many panels

// Which rows and panels an item computes.
struct Item {
  int64_t row, rows, panel, panels;
};

// Panels x rows, cut evenly. Items of the same panels are neighbours, so that the panels come
// from memory once.
class Cut {
 public:
  Cut(int64_t panels, int64_t rows, int64_t group)
      : panels_(panels), rows_(rows), groups_((panels + group - 1) / group),
        blocks_((rows + ROWS - 1) / ROWS) {}

  int64_t items() const { return groups_ * blocks_; }

  Item item(int64_t index) const {
    const int64_t group = index / blocks_, block = index % blocks_;
    const int64_t panel = panels_ * group / groups_, row = rows_ * block / blocks_;
    return {row, rows_ * (block + 1) / blocks_ - row, panel,
            panels_ * (group + 1) / groups_ - panel};
  }

 private:
  int64_t panels_, rows_, groups_, blocks_;
};

// Panels of an item: so few that every thread finds work until the end.
int64_t group_for(int64_t panels, int64_t most, int threads) {
  return std::clamp<int64_t>(panels / (ITEMS_PER_THREAD * threads), 1, most);
}

void add_bias(float* c, const float* bias, int64_t n) {
  for (int64_t j = 0; j < n; j++) c[j] += bias[j];
}

template <F32 (*function)(F32)>
void combine(float* gate, const float* up, int64_t n) {
  for (int64_t j = 0; j < n; j += W) store(gate + j, function(load(gate + j)) * load(up + j));
}

// gate := activation(gate) * up
void combine(Activation activation, float* gate, const float* up, int64_t n) {
  switch (activation) {
    case Activation::silu:
      return combine<silu>(gate, up, n);
    case Activation::gelu:
      return combine<gelu>(gate, up, n);
    case Activation::gelu_tanh:
      return combine<gelu_tanh>(gate, up, n);
  }
}

void linear_item(const Part& part, const Item& item, float* y, int64_t stride, bool add) {
  alignas(64) float c[ROWS * PANELS * PANEL];
  const int64_t ldc = item.panels * PANEL, column = item.panel * PANEL;
  const int64_t n = std::min(ldc, part.weight->n - column);
  panel_product(*part.weight, item.panel, item.panels, part.x, item.row, item.rows, c, ldc);
  for (int64_t r = 0; r < item.rows; r++) {
    float* from = c + r * ldc;
    float* to = y + (item.row + r) * stride + part.column + column;
    if (part.bias != nullptr) add_bias(from, part.bias + column, n);
    if (add)
      for (int64_t j = 0; j < n; j++) to[j] += from[j];
    else
      std::copy_n(from, n, to);
  }
}

void gated_item(const Part& gate, const Part& up, Activation activation, const Item& item,
                float* y, int64_t stride) {
  alignas(64) float c[ROWS * PANELS * PANEL];
  const int64_t width = item.panels * PANEL, ldc = 2 * width, column = item.panel * PANEL;
  const int64_t n = std::min(width, gate.weight->n - column);
  panel_product(*gate.weight, item.panel, item.panels, gate.x, item.row, item.rows, c, ldc);
  panel_product(*up.weight, item.panel, item.panels, up.x, item.row, item.rows, c + width, ldc);
  for (int64_t r = 0; r < item.rows; r++) {
    float* from = c + r * ldc;
    if (gate.bias != nullptr) add_bias(from, gate.bias + column, n);
    if (up.bias != nullptr) add_bias(from + width, up.bias + column, n);
    combine(activation, from, from + width, width);
    std::copy_n(from, n, y + (item.row + r) * stride + gate.column + column);
  }
}

}  // namespace

void linear(Team& team, const std::vector<Part>& parts, int64_t rows, float* y, int64_t stride,
            bool add) {
  int64_t panels = 0, items = 0;
  for (const Part& part : parts) panels += part.weight->panels();
  const int64_t group = group_for(panels, PANELS, team.threads());
  for (const Part& part : parts) items += Cut(part.weight->panels(), rows, group).items();
  team.each(items, 1, [&](int64_t index) {
    for (const Part& part : parts) {
      const Cut cut(part.weight->panels(), rows, group);
      if (index < cut.items()) return linear_item(part, cut.item(index), y, stride, add);
      index -= cut.items();
    }
  });
}

void gated(Team& team, const Part& gate, const Part& up, Activation activation, int64_t rows,
           float* y, int64_t stride) {
  const int64_t panels = gate.weight->panels();
  const Cut cut(panels, rows, group_for(panels, PANELS / 2, team.threads()));
  team.each(cut.items(), 1, [&](int64_t index) {
    gated_item(gate, up, activation, cut.item(index), y, stride);
  });
}

}  // namespace octavo
