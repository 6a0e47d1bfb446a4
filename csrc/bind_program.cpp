// Memory and Program for Python: a step's arrays are checked here, once, and nowhere below.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bind.h"
#include "border.h"
#include "names.h"
#include "program.h"
#include "roofline.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace octavo {
namespace {

template <class T, int Axes>
using Input = Array<const T, Axes>;
// The table has every block that a row's tokens see, and each lies in the pool.
void check_blocks(const Step& step, const Program::Paging& paging) {
  require(size_t(paging.group) < step.tables.size(), "tables: not one for each KV group");
  const int64_t width = step.widths[paging.group];
  for (int64_t r = 0; r < step.rows; r++) {
    const int64_t context = step.context_lens[r];
    const int64_t length = step.row_starts[r + 1] - step.row_starts[r];
    const int64_t oldest = paging.sight.oldest(static_cast<int>(context - length));
    const int64_t blocks = (context + paging.block_size - 1) / paging.block_size;
    require(blocks <= width, "tables: shorter than a row's context");
    const int32_t* ids = step.tables[paging.group].data() + r * width;
    uint32_t largest = 0;  // a negative one would be larger than all
    for (int64_t i = oldest / paging.block_size; i < blocks; i++)
      largest = std::max<uint32_t>(largest, ids[i]);
    require(blocks == 0 || largest < paging.pages, "tables: a block outside of the pool");
  }
}

// Numbers that ops take as indices.
void check_step(const Step& step, const Program& program) {
  bool given = false;
  for (int32_t id : step.token_ids) {
    require(id < program.vocabulary(), "token_ids: not below the vocabulary's size");
    given |= id < 0;
  }
  require(!given || !step.embeddings.empty(), "embeddings: none for a token without id");
  const size_t values = static_cast<size_t>(step.tokens * program.hidden());
  require(step.embeddings.empty() || step.embeddings.size() == values,
          "embeddings: not [tokens, hidden]");
  for (int64_t token : step.chosen_tokens)
    require(token >= 0 && token < step.tokens, "chosen: not below the number of tokens");
  require(step.row_starts.front() == 0 && step.row_starts.back() == step.tokens &&
              std::is_sorted(step.row_starts.begin(), step.row_starts.end()),
          "row_starts: not rising from 0 to the number of tokens");
  for (int64_t r = 0; r < step.rows; r++)
    require(step.context_lens[r] >= step.row_starts[r + 1] - step.row_starts[r],
            "context_lens: shorter than a row");
  for (const Program::Paging& paging : program.pagings()) check_blocks(step, paging);
  check_states(step, program);
}

void take(Program& program, Input<int32_t, 1> token_ids, Input<int64_t, 2> positions,
          Input<int32_t, 1> row_starts, Input<int32_t, 1> context_lens,
          const std::vector<Input<int32_t, 2>>& tables, Input<int64_t, 1> chosen,
          std::optional<Input<float, 2>> embeddings) {
  Step step;
  step.tokens = token_ids.size();
  step.rows = context_lens.size();
  step.chosen = chosen.size();
  require(static_cast<int64_t>(positions.shape(1)) == step.tokens, "positions: not one a token");
  require(static_cast<int>(positions.shape(0)) >= program.axes(), "positions: too few axes");
  require(static_cast<int64_t>(row_starts.size()) == step.rows + 1, "row_starts: not rows + 1");
  step.token_ids.assign(token_ids.data(), token_ids.data() + step.tokens);
  step.positions.assign(positions.data(), positions.data() + positions.size());
  step.row_starts.assign(row_starts.data(), row_starts.data() + row_starts.size());
  step.context_lens.assign(context_lens.data(), context_lens.data() + step.rows);
  step.chosen_tokens.assign(chosen.data(), chosen.data() + step.chosen);
  if (embeddings)
    step.embeddings.assign(embeddings->data(), embeddings->data() + embeddings->size());
  for (const auto& table : tables) {
    require(static_cast<int64_t>(table.shape(0)) == step.rows, "tables: not one line a row");
    step.tables.emplace_back(table.data(), table.data() + table.size());
    step.widths.push_back(table.shape(1));
  }
  check_step(step, program);
  nb::gil_scoped_release release;
  program.take(std::move(step));
}

nb::ndarray<nb::numpy, float, nb::ndim<2>> rows(Program& program, BufferId buffer) {
  const size_t shape[] = {static_cast<size_t>(program.count(buffer)),
                          static_cast<size_t>(program.width(buffer))};
  const int64_t strides[] = {program.stride(buffer), 1};
  return {program.rows(buffer), 2, shape, nb::find(program), strides};
}

void start(Program& program, int segment) {
  require(0 <= segment && segment < program.segments(), "there is no such segment");
  nb::gil_scoped_release release;  // the job before may still run
  program.start(segment);
}

using Cost = std::tuple<std::string, double, std::map<std::string, double>, double>;

std::vector<Cost> costs(Program& program) {
  program.wait();
  std::vector<Cost> found;
  for (const OpCost& cost : program.costs()) {
    std::map<std::string, double> operations;
    for (int form = 0; form < FORMS; form++)
      if (const double some = cost.work.operations[form]; some > 0)
        operations[kOperands[static_cast<int>(operand_of(static_cast<Form>(form)))]] += some;
    found.emplace_back(cost.name, cost.seconds, std::move(operations), cost.work.bytes);
  }
  return found;
}

}  // namespace

void bind_program(nb::module_& module) {
  nb::class_<Buffer>(module, "Memory", "Bytes on huge pages, zero at first.")
      .def(nb::init<size_t>(), "nbytes"_a)
      .def_prop_ro("nbytes", &Buffer::size)
      .def_prop_ro("data", [](nb::handle_t<Buffer> self) {
        Buffer& buffer = nb::cast<Buffer&>(self);
        return nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(buffer.data(), {buffer.size()}, self);
      });
  nb::class_<Program> program(module, "Program", "A step as a list of ops over buffers of rows.");
  bind_ops(program);
  bind_attention_op(program);
  program.def(nb::init<std::shared_ptr<Pool>>(), "pool"_a)
      .def("take", &take, nb::kw_only(), "token_ids"_a, "positions"_a, "row_starts"_a,
           "context_lens"_a, "tables"_a, "chosen"_a, "embeddings"_a = nb::none())
      .def("start", &start, "segment"_a)
      .def("wait", &Program::wait, nb::call_guard<nb::gil_scoped_release>())
      .def("rows", &rows, "buffer"_a)
      .def("costs", &costs)
      .def_prop_ro("segments", &Program::segments);
  bind_state(program);
}

}  // namespace octavo
