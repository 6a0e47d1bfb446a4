// How a linear is cut into items for the threads, and what is done to the sums while they are hot.
#include "linear.h"

#include <algorithm>
#include <numeric>

#include "gating.h"

namespace octavo {
namespace {

constexpr int64_t ROWS = 192;            // of an item at most: a chunk of theirs stays in L2
constexpr int64_t PANELS = 8;            // of an item at most
constexpr int64_t ITEMS_PER_THREAD = 8;  // at least, where there are so many panels

// Which rows and panels an item computes.
struct Item {
  int64_t row, rows, panel, panels;
};

// Rows in blocks of one height, nearly. Blocks of the same panels are neighbours, so that the
// panels come from memory once.
class Blocks {
 public:
  explicit Blocks(int64_t rows) : rows_(rows), count_((rows + ROWS - 1) / ROWS) {}

  int64_t count() const { return count_; }

  Item item(int64_t index, const Slice& slice) const {
    const int64_t row = rows_ * index / count_;
    return {row, rows_ * (index + 1) / count_ - row, slice.panel, slice.panels};
  }

 private:
  int64_t rows_, count_;
};

// Panels of an item: so few that every thread finds work until the end.
int64_t group_for(int64_t panels, int64_t most, int threads) {
  return std::clamp<int64_t>(panels / (ITEMS_PER_THREAD * threads), 1, most);
}

// Panels of one part in slices of `group` at most, as even as can be.
class Slices {
 public:
  Slices(int64_t panels, int64_t group) : panels_(panels), count_((panels + group - 1) / group) {}

  int64_t count() const { return count_; }

  Slice slice(int part, int64_t index) const {
    const int64_t panel = panels_ * index / count_;
    return {part, panel, panels_ * (index + 1) / count_ - panel};
  }

 private:
  int64_t panels_, count_;
};

// c := scale * (c + bias)
void finish(float* c, const Part& part, int64_t column, int64_t n) {
  if (part.bias != nullptr)
    for (int64_t j = 0; j < n; j++) c[j] += part.bias[column + j];
  if (part.scale != 1)
    for (int64_t j = 0; j < n; j++) c[j] *= part.scale;
}

void linear_item(const Part& part, const Item& item, float* y, int64_t stride, bool add) {
  alignas(64) float c[ROWS * PANELS * PANEL];
  const int64_t ldc = item.panels * PANEL, column = item.panel * PANEL;
  const int64_t n = std::min(ldc, part.weight->n - column);
  panel_product(*part.weight, item.panel, item.panels, part.x, item.row, item.rows, c, ldc);
  for (int64_t r = 0; r < item.rows; r++) {
    float* from = c + r * ldc;
    float* to = y + (item.row + r) * stride + part.column + column;
    finish(from, part, column, n);
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
    finish(from, gate, column, n);
    finish(from + width, up, column, n);
    apply({.function = activation}, from, from + width, width);
    std::copy_n(from, n, y + (item.row + r) * stride + gate.column + column);
  }
}

}  // namespace

std::vector<Slice> slices(const std::vector<int64_t>& panels, int threads) {
  const int64_t all = std::accumulate(panels.begin(), panels.end(), int64_t{0});
  const int64_t group = group_for(all, PANELS, threads);
  std::vector<Slice> found;
  for (size_t part = 0; part < panels.size(); part++) {
    const Slices own(panels[part], group);
    for (int64_t i = 0; i < own.count(); i++) found.push_back(own.slice(static_cast<int>(part), i));
  }
  return found;
}

void linear(Team& team, const std::vector<Part>& parts, const std::vector<Slice>& slices,
            int64_t rows, float* y, int64_t stride, bool add) {
  const Blocks blocks(rows);
  team.each(static_cast<int64_t>(slices.size()) * blocks.count(), 1, [&](int64_t index) {
    const Slice& slice = slices[index / blocks.count()];
    linear_item(parts[slice.part], blocks.item(index % blocks.count(), slice), y, stride, add);
  });
}

void gated(Team& team, const Part& gate, const Part& up, Activation activation, int64_t rows,
           float* y, int64_t stride) {
  const int64_t panels = gate.weight->panels();
  const Blocks blocks(rows);
  const Slices slices(panels, group_for(panels, PANELS / 2, team.threads()));
  team.each(slices.count() * blocks.count(), 1, [&](int64_t index) {
    const Slice slice = slices.slice(0, index / blocks.count());
    gated_item(gate, up, activation, blocks.item(index % blocks.count(), slice), y, stride);
  });
}

}  // namespace octavo
