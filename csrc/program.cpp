#include "program.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "clock.h"

namespace octavo {
namespace {

constexpr Form kForms[] = {Form::f32, Form::bf16, Form::q8, Form::q16, Form::q8_row};
static_assert(std::size(kForms) == FORMS);

}  // namespace

Work& Work::operator+=(const Work& other) {
  for (int form = 0; form < FORMS; form++) operations[form] += other.operations[form];
  bytes += other.bytes;
  return *this;
}

// ---- buffers ----

Rows Program::Slot::rows(Form form) const {
  return cut_rows(form, capacity, width, memory[static_cast<int>(form)].data());
}

void Program::Slot::fit(int64_t rows) {
  if (rows <= capacity) return;
  const int64_t more = std::max(rows, 2 * capacity);
  for (Form form : kForms) {
    const int i = static_cast<int>(form);
    if (form == Form::f32 || wanted[i]) memory[i] = Buffer(form_bytes(form, more, width));
  }
  capacity = more;
}

void Program::Slot::convert(int64_t row) const {
  const float* values = memory[0].data<float>() + row * padded();
  for (Form form : kForms)
    if (form != Form::f32 && wanted[static_cast<int>(form)]) to_form(rows(form), row, values);
}

BufferId Program::buffer(int64_t width, bool chosen) {
  slots_.push_back(std::make_unique<Slot>());
  slots_.back()->width = width;
  slots_.back()->chosen = chosen;
  return static_cast<BufferId>(slots_.size()) - 1;
}

void Program::want(BufferId buffer, Form form) {
  Slot& slot = *slots_[buffer];
  slot.wanted[static_cast<int>(form)] = true;
  if (form == Form::f32 || slot.converts) return;
  slot.converts = true;
  add("convert", [this, buffer](Team& team) {
    each_row(team, count(buffer), [&](int64_t row) { slots_[buffer]->convert(row); });
  });
}

// ---- ops ----

void Program::add(const std::string& name, std::function<void(Team&)> run,
                  std::function<Work()> work) {
  ops_.push_back({OpCost{.name = name}, std::move(run), std::move(work)});
}

std::vector<Part> Program::views(const Parts& parts, BufferId from) const {
  std::vector<Part> found;
  for (const LinearPart& part : parts) found.push_back(part.view(slots_[from]->rows(part.form())));
  return found;
}

Work Program::work_of(const Parts& parts, int64_t rows) const {
  Work work;
  for (const LinearPart& part : parts) {
    const Packed& w = *part.weight;
    work.operations[static_cast<int>(part.form())] += 2.0 * rows * w.n * w.k;
    work.bytes += rows > 0 ? w.data.size() : 0;
  }
  return work;
}

void Program::Rope::fit(int64_t tokens) {
  if (tokens <= capacity) return;
  const int64_t more = std::max(tokens, 2 * capacity);
  cos = Buffer(more * inv_freq.size() * sizeof(float));
  sin = Buffer(more * inv_freq.size() * sizeof(float));
  capacity = more;
}

int Program::rope(std::vector<float> inv_freq, float factor, int axis) {
  ropes_.push_back(std::make_unique<Rope>());
  Rope& rope = *ropes_.back();
  rope.inv_freq = std::move(inv_freq);
  rope.factor = factor;
  rope.axis = axis;
  add("rope", [this, &rope](Team& team) {
    const int64_t* positions = step_.positions.data() + rope.axis * step_.tokens;
    rope_table(team, positions, step_.tokens, rope.inv_freq.data(), rope.half(), rope.factor,
               rope.cos.data<float>(), rope.sin.data<float>());
  });
  return static_cast<int>(ropes_.size()) - 1;
}

void Program::linear(const std::string& name, BufferId to, BufferId from, Parts parts,
                     bool add_to) {
  for (const LinearPart& part : parts) want(from, part.form());
  auto shared = std::make_shared<Parts>(std::move(parts));
  std::vector<int64_t> panels;
  for (const LinearPart& part : *shared) panels.push_back(part.weight->panels());
  auto cut = slices(panels, pool_->threads());
  auto run = [this, to, from, shared, cut = std::move(cut), add_to](Team& team) {
    octavo::linear(team, views(*shared, from), cut, count(from), rows(to), stride(to), add_to);
  };
  add(name, run, [this, from, shared] { return work_of(*shared, count(from)); });
  slots_[to]->converts = false;
}

void Program::gated(const std::string& name, BufferId to, BufferId from, LinearPart gate,
                    LinearPart up, Activation activation) {
  auto shared = std::make_shared<Parts>();
  shared->push_back(std::move(gate));
  shared->push_back(std::move(up));
  for (const LinearPart& part : *shared) want(from, part.form());
  auto run = [this, to, from, shared, activation](Team& team) {
    const std::vector<Part> parts = views(*shared, from);
    octavo::gated(team, parts[0], parts[1], activation, count(from), rows(to), stride(to));
  };
  add(name, run, [this, from, shared] { return work_of(*shared, count(from)); });
  slots_[to]->converts = false;
}

Program::Planned& Program::plan_for(const AttentionSpec& spec, int group) {
  for (auto& planned : plans_)
    if (planned->group == group && planned->spec.plans_like(spec)) return *planned;
  plans_.push_back(std::make_unique<Planned>());
  plans_.back()->spec = spec;
  plans_.back()->group = group;
  return *plans_.back();
}

void Program::plan(Planned& planned) {
  const BatchRows rows = batch(planned.group);
  planned.plan.make(rows, planned.spec, pool_->threads());
  planned.seen = planned.read = 0;
  const Sight& sight = planned.spec.sight;
  for (int64_t r = 0; r < rows.rows; r++) {
    if (rows.length(r) > 0) planned.read += rows.context_lens[r] - sight.oldest(rows.start(r));
    for (int position = rows.start(r); position < rows.context_lens[r]; position++)
      planned.seen += position + 1 - sight.oldest(position);
  }
}

BatchRows Program::batch(int group) const {
  return {.rows = step_.rows,
          .tokens = step_.tokens,
          .row_starts = step_.row_starts.data(),
          .context_lens = step_.context_lens.data(),
          .table = step_.tables[group].data(),
          .table_width = step_.widths[group]};
}

void Program::attention(BufferId to, BufferId from, Attention attention) {
  auto shared = std::make_shared<Attention>(std::move(attention));
  const KVPages& pages = shared->pages;
  const Paging paging{shared->group, shared->spec.sight, pages.block_size,
                      static_cast<int64_t>(shared->memory->size()) / pages.page_bytes};
  if (std::find(pagings_.begin(), pagings_.end(), paging) == pagings_.end())
    pagings_.push_back(paging);
  const auto data = [](const std::vector<float>& v) { return v.empty() ? nullptr : v.data(); };
  shared->spec.sinks = data(shared->sinks);
  shared->preparation.q_norm.weight = data(shared->q_norm);
  shared->preparation.k_norm.weight = data(shared->k_norm);
  add("rotary", [this, from, shared](Team& team) {
    Preparation preparation = shared->preparation;
    if (shared->rope >= 0) preparation.rotary = ropes_[shared->rope]->table();
    prepare(team, shared->spec, preparation, shared->pages, batch(shared->group), rows(from),
            stride(from));
  });
  const Planned& planned = plan_for(shared->spec, shared->group);
  auto run = [this, to, from, shared, &planned](Team& team) {
    attend(team, planned.plan, shared->spec, shared->pages, batch(shared->group), rows(from),
           stride(from), rows(to), stride(to));
  };
  add("attention", run, [shared, &planned] {
    const AttentionSpec& spec = shared->spec;
    const KVFormat format = shared->pages.format;
    Work work;
    work.operations[static_cast<int>(Form::f32)] =
        2 * planned.seen * spec.heads * (spec.head_dim + spec.v_head_dim);
    work.bytes = planned.read * spec.kv_heads *
                 (token_bytes(format, spec.head_dim) + token_bytes(format, spec.stored_v_dim()));
    return work;
  });
  slots_[to]->converts = slots_[from]->converts = false;
}

void Program::cut() {
  cuts_.push_back(ops_.size());
  for (auto& slot : slots_) slot->converts = false;  // the caller may write what its writer did
}

// ---- steps ----

int Program::axes() const {
  int axes = 0;
  for (const auto& rope : ropes_) axes = std::max(axes, rope->axis + 1);
  return axes;
}

void Program::take(Step step) {
  wait();  // a step that was given up may still be running
  step_ = std::move(step);
  for (auto& slot : slots_)
    slot->fit(slot->chosen ? step_.chosen : slot->copies * step_.tokens);
  for (auto& routes : routes_) routes->fit(step_.tokens);
  for (auto& rope : ropes_) rope->fit(step_.tokens);
  for (auto& planned : plans_) plan(*planned);
}

void Program::start(int segment) {
  const size_t begin = segment == 0 ? 0 : cuts_[segment - 1];
  const size_t end = segment == segments() - 1 ? ops_.size() : cuts_[segment];
  pool_->start([this, begin, end](Team& team) { run(team, begin, end); });
}

void Program::run(Team& team, size_t begin, size_t end) {
  double last = now();
  for (size_t i = begin; i < end; i++) {
    Op& op = ops_[i];
    op.run(team);
    if (team.thread() > 0) continue;
    const double done = now();
    op.cost.seconds += done - last;
    last = done;
    if (op.work) op.cost.work += op.work();
  }
}

std::vector<OpCost> Program::costs() const {
  std::vector<OpCost> found;
  for (const Op& op : ops_) {
    auto same = std::find_if(found.begin(), found.end(),
                             [&](const OpCost& cost) { return cost.name == op.cost.name; });
    if (same == found.end()) same = found.insert(same, OpCost{.name = op.cost.name});
    same->seconds += op.cost.seconds;
    same->work += op.cost.work;
  }
  return found;
}

}  // namespace octavo
