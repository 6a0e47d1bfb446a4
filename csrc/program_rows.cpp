// The program's ops on single rows: what lies between linears and attention.
#include <cstring>
#include <utility>

#include "program.h"

namespace octavo {
namespace {

void scale_row(float* x, int64_t n, float scale) {
  store_each(x, n, [&](int64_t i, int64_t count) { return load_part(x + i, count) * scale; });
}

// y[i] *= function(x[i]), or of x[0] alone.
void multiply_row(float* y, const float* x, int64_t n, bool one, Activation activation) {
  with_activation(activation, [&](auto function) {
    const F32 all = function(splat(*x));
    store_each(y, n, [&](int64_t i, int64_t count) {
      return load_part(y + i, count) * (one ? all : function(load_part(x + i, count)));
    });
  });
}

}  // namespace

void Program::embed(BufferId to, std::shared_ptr<Packed> table, float scale) {
  embedding_ = std::move(table);
  change_rows("embed", to, [this, width = width(to), scale](int64_t token, float* row) {
    const int32_t id = step_.token_ids[token];
    if (id < 0)
      std::memcpy(row, step_.embeddings.data() + token * width, width * sizeof(float));
    else
      unpack_row(*embedding_, id, row);
    if (id >= 0 && scale != 1) scale_row(row, width, scale);
  });
}

void Program::norm(const std::string& name, BufferId to, BufferId from, Norm norm) {
  change_rows(name, to, [this, from, norm = std::move(norm)](int64_t index, float* y) {
    const float* x = row(from, index);
    const int64_t size = norm.columns / norm.groups;
    for (int64_t at = 0; at < norm.columns; at += size)
      octavo::norm(norm.kind, x + norm.column + at,
                   norm.weight.empty() ? nullptr : norm.weight.data() + at,
                   norm.bias.empty() ? nullptr : norm.bias.data() + at, size, norm.eps, norm.add,
                   y + norm.column + at);
  });
}

void Program::activate(const std::string& name, BufferId buffer, Activation activation) {
  change_rows(name, buffer, [activation, width = width(buffer)](int64_t, float* x) {
    with_activation(activation, [&](auto function) {
      store_each(x, width,
                 [&](int64_t i, int64_t count) { return function(load_part(x + i, count)); });
    });
  });
}

void Program::multiply(const std::string& name, BufferId to, BufferId from, Activation function,
                       int64_t column) {
  const bool one = width(from) == 1;
  change_rows(name, to,
              [this, from, function, column, one, width = width(to)](int64_t index, float* y) {
                multiply_row(y, row(from, index) + column, width, one, function);
              });
}

void Program::soft_cap(const std::string& name, BufferId buffer, float cap) {
  change_rows(name, buffer, [cap, width = width(buffer)](int64_t, float* x) {
    store_each(x, width, [&](int64_t i, int64_t count) {
      return cap * tanh(load_part(x + i, count) * (1.f / cap));
    });
  });
}

void Program::copy(const std::string& name, BufferId to, BufferId from, int64_t column,
                   int64_t from_column, int64_t columns) {
  change_rows(name, to, [=, this](int64_t index, float* y) {
    std::memcpy(y + column, row(from, index) + from_column, columns * sizeof(float));
  });
}

void Program::add_rows(const std::string& name, BufferId to, BufferId from) {
  change_rows(name, to, [this, from, width = width(to)](int64_t index, float* y) {
    const float* x = row(from, index);
    store_each(y, width, [&](int64_t i, int64_t count) {
      return load_part(y + i, count) + load_part(x + i, count);
    });
  });
}

void Program::choose(const std::string& name, BufferId to, BufferId from) {
  change_rows(name, to, [this, from, width = width(from)](int64_t index, float* y) {
    std::memcpy(y, row(from, step_.chosen_tokens[index]), width * sizeof(float));
  });
}

}  // namespace octavo
