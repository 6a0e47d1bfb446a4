// The ops of a program that choose experts and run them.
#include <algorithm>

#include "program.h"

namespace octavo {
namespace {

void include(std::vector<Form>& forms, Form form) {
  if (std::find(forms.begin(), forms.end(), form) == forms.end()) forms.push_back(form);
}

// In which the linears of a mixture read: gate and up, and down.
struct FormsRead {
  std::vector<Form> outer, inner;

  explicit FormsRead(const std::vector<Expert>& experts) {
    for (const Expert& expert : experts) {
      if (expert.gated()) include(outer, expert.gate.form());
      include(outer, expert.up.form());
      include(inner, expert.down.form());
    }
  }
};

}  // namespace

int Program::route(const std::string& name, BufferId from, Router router) {
  routes_.push_back(std::make_unique<Routes>(router.experts, router.top_k));
  Routes& routes = *routes_.back();
  add(name, [this, from, &routes, router = std::move(router)](Team& team) {
    team.each(step_.tokens, 4, [&](int64_t token) {
      const int64_t pair = token * router.top_k;
      router.choose(rows(from) + token * stride(from), routes.chosen.data() + pair,
                    routes.weights.data() + pair);
    });
    team.each(1, 1, [&](int64_t) { routes.sort(kSpanRows); });
  });
  return static_cast<int>(routes_.size()) - 1;
}

BufferId Program::pairs(int use, int64_t width, int64_t top_k) {
  const auto [found, is_new] = pairs_.try_emplace({use, width, top_k}, 0);
  if (is_new) {
    found->second = buffer(width, false);
    slots_.back()->copies = top_k;
  }
  return found->second;
}

Forms Program::forms(BufferId buffer) const {
  Forms forms;
  const Slot& slot = *slots_[buffer];
  for (int form = 0; form < FORMS; form++)
    if (slot.memory[form].size() > 0) forms[form] = slot.rows(static_cast<Form>(form));
  return forms;
}

Work Program::work_of(const Mixture& mixture) const {
  Work work;
  const std::vector<ExpertSpan>& spans = routes_[mixture.routes]->spans;
  for (const ExpertSpan& span : spans) {
    const Expert& expert = mixture.experts[span.expert];
    const bool first = &span == &spans[span.first];
    for (const ExpertLinear* linear : {&expert.gate, &expert.up, &expert.down}) {
      if (linear->weight == nullptr) continue;
      const Packed& w = *linear->weight;
      work.operations[static_cast<int>(linear->form())] += 2.0 * span.rows * w.n * w.k;
      if (first) work.bytes += w.data.size();
    }
  }
  return work;
}

void Program::experts(const std::string& name, BufferId to, BufferId from, Mixture mixture) {
  auto shared = std::make_shared<Mixture>(std::move(mixture));
  const Routes& routes = *routes_[shared->routes];
  const FormsRead read(shared->experts);
  const BufferId x = pairs(0, width(from), routes.top_k);
  const BufferId inner = pairs(1, shared->experts[0].down.weight->k, routes.top_k);
  const BufferId outputs = pairs(0, width(to), routes.top_k);  // x may lie there: it has been read
  for (Form form : read.outer) slots_[x]->wanted[static_cast<int>(form)] = true;
  for (Form form : read.inner) slots_[inner]->wanted[static_cast<int>(form)] = true;
  if (!shared->weigh_input)
    for (Form form : read.outer) want(from, form);
  auto run = [=, this, &routes](Team& team) {
    const Forms given = forms(from), gathered = forms(x), between = forms(inner);
    const Rows& values = between[0];
    if (shared->weigh_input) {
      weigh(team, routes, given[0], gathered[0]);
      form(team, routes, read.outer, gathered);
    } else {
      gather(team, routes, read.outer, given, gathered);
    }
    gate_and_up(team, routes, shared->experts, shared->gating, gathered, values);
    form(team, routes, read.inner, between);
    const Rows last = slots_[outputs]->rows(Form::f32);
    down(team, routes, shared->experts, between, last);
    add_up(team, routes, !shared->weigh_input, last, rows(to), stride(to));
  };
  add(name, run, [this, shared] { return work_of(*shared); });
  slots_[to]->converts = false;
}

}  // namespace octavo
