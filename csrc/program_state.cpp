// The ops of a program that read and write states.
#include <algorithm>
#include <utility>

#include "program.h"

namespace octavo {

template <class Spec, class Run>
void Program::add_states(const std::string& name, States states, Spec spec, Run run) {
  const StatePaging paging{states.group, states.pages()};
  if (std::find(state_pagings_.begin(), state_pagings_.end(), paging) == state_pagings_.end())
    state_pagings_.push_back(paging);
  const auto rows_of = [this, states = std::move(states)] {
    return StateRows{.base = states.memory->data() + states.offset,
                     .page_bytes = states.page_bytes,
                     .rows = step_.rows,
                     .row_starts = step_.row_starts.data(),
                     .table = step_.tables[states.group].data()};
  };
  const auto shared = std::make_shared<const Spec>(std::move(spec));
  const auto work = [rows_of, shared] {
    const StateRows state = rows_of();
    Work work;
    work.operations[static_cast<int>(Form::f32)] = shared->operations() * state.tokens();
    for (int64_t row = 0; row < state.rows; row++)
      work.bytes += sizeof(float) * shared->floats() * (state.source(row) ? 2 : 1);
    return work;
  };
  add(name, [rows_of, shared, run](Team& team) { run(team, *shared, rows_of()); }, work);
}

void Program::convolve(const std::string& name, BufferId to, BufferId from, int64_t column,
                       States states, Convolution convolution) {
  const auto run = [=, this](Team& team, const Convolution& spec, const StateRows& state) {
    const Lines x = lines(from);
    octavo::convolve(team, spec, state, {x.data + column, x.stride}, lines(to));
  };
  add_states(name, std::move(states), std::move(convolution), run);
  slots_[to]->converts = false;
}

void Program::scan_mamba2(const std::string& name, BufferId to, BufferId from, BufferId steps,
                          States states, Mamba2 mamba) {
  const auto run = [=, this](Team& team, const Mamba2& spec, const StateRows& state) {
    octavo::scan_mamba2(team, spec, state, lines(from), lines(steps), lines(to));
  };
  add_states(name, std::move(states), std::move(mamba), run);
  for (BufferId changed : {to, steps}) slots_[changed]->converts = false;
}

void Program::scan_mamba1(const std::string& name, BufferId to, BufferId from, BufferId steps,
                          BufferId bc, States states, Mamba1 mamba) {
  const auto run = [=, this](Team& team, const Mamba1& spec, const StateRows& state) {
    octavo::scan_mamba1(team, spec, state, lines(from), lines(steps), lines(bc), lines(to));
  };
  add_states(name, std::move(states), std::move(mamba), run);
  for (BufferId changed : {to, steps}) slots_[changed]->converts = false;
}

void Program::gated_delta(const std::string& name, BufferId to, BufferId from, BufferId decay,
                          BufferId beta, States states, GatedDelta delta) {
  const auto run = [=, this](Team& team, const GatedDelta& spec, const StateRows& state) {
    octavo::gated_delta(team, spec, state, lines(from), lines(decay), lines(beta), lines(to));
  };
  add_states(name, std::move(states), std::move(delta), run);
  for (BufferId changed : {to, from, decay, beta}) slots_[changed]->converts = false;
}

}  // namespace octavo
