// A model's step as a flat list of ops over buffers of rows. A program is built once, op by op;
// then a step is a set of arrays and one call: every thread of the pool runs every op.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "attention.h"
#include "buffer.h"
#include "experts.h"
#include "linear.h"
#include "pool.h"
#include "rotary.h"
#include "row_ops.h"
#include "rows.h"
#include "state_ops.h"

namespace octavo {

// What one step computes: T tokens of R sequences, of which S are chosen.
struct Step {
  int64_t tokens = 0;
  int64_t rows = 0;
  int64_t chosen = 0;
  std::vector<int32_t> token_ids;            // [T]; below 0: the token is its row of `embeddings`
  std::vector<float> embeddings;             // [T][hidden], or empty
  std::vector<int64_t> positions;            // [axes][T]
  std::vector<int64_t> chosen_tokens;        // [S]: whose rows choose() takes
  std::vector<int32_t> row_starts;           // [R + 1]
  std::vector<int32_t> context_lens;         // [R]
  std::vector<std::vector<int32_t>> tables;  // by KV group: [R][widths[group]] block ids
  std::vector<int64_t> widths;
};

// What ops do: by Form of what they multiply, a multiply-add being two; and bytes of weights and KV
// that they read.
struct Work {
  double operations[FORMS] = {};
  double bytes = 0;

  Work& operator+=(const Work& other);
};

// What the ops of one name have cost since the program was made.
struct OpCost {
  std::string name;
  double seconds = 0;  // as the first thread saw it
  Work work = {};
};

using BufferId = int;

class Program {
 public:
  // A linear's weights, its bias (or empty), where its outputs go, which column of its input is the
  // first that it reads, and what its outputs are multiplied with.
  struct LinearPart {
    std::shared_ptr<Packed> weight;
    std::vector<float> bias;
    int64_t column;
    int64_t first = 0;
    float scale = 1;

    Form form() const { return form_for(weight->format); }
    Part view(const Rows& x) const {
      return {weight.get(), bias.empty() ? nullptr : bias.data(), column,
              x.columns(first, weight->k), scale};
    }
  };

  // A norm over `columns` columns from `column` on, in `groups` equal parts, each on its own.
  struct Norm {
    NormKind kind;
    std::vector<float> weight, bias;  // [columns], or empty
    float eps;
    int64_t column, columns, groups;
    bool add;  // to what is there
  };

  // One layer's attention, and what it points to.
  struct Attention {
    AttentionSpec spec;  // its sinks are set from those here
    std::vector<float> sinks;  // [heads], or empty
    KVPages pages;
    std::shared_ptr<Buffer> memory;  // which the pages lie in
    int group;                       // whose block table says where
    int rope;                        // below 0: none
    std::vector<float> q_norm, k_norm;  // weights [head_dim], or empty
    Preparation preparation;  // without rotary; its norms' weights are set from those here
  };

  // One layer's experts, and by which routes() tokens go to them.
  struct Mixture {
    int routes;
    std::vector<Expert> experts;
    Gating gating;
    bool weigh_input;  // an expert's input is multiplied by the weight, instead of its output
  };

  // What attention over a KV group reads: where a step's tables of it may point.
  struct Paging {
    int group;
    Sight sight;
    int block_size;
    int64_t pages;

    bool operator==(const Paging&) const = default;
  };

  // Where one layer's part of the states lies.
  struct States {
    std::shared_ptr<Buffer> memory;
    int64_t page_bytes;
    int64_t offset;  // from the start of a page, in bytes
    int group;       // whose table [rows][2] says where each row's state is, and where it goes

    int64_t pages() const { return static_cast<int64_t>(memory->size()) / page_bytes; }
  };

  // Where a step's table of a group of states may point.
  struct StatePaging {
    int group;
    int64_t pages;

    bool operator==(const StatePaging&) const = default;
  };

  explicit Program(std::shared_ptr<Pool> pool) : pool_(std::move(pool)) {}
  ~Program() { wait(); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Rows of `width` floats, one for each token of a step, or for each chosen one.
  BufferId buffer(int64_t width, bool chosen);

  // ---- ops, in the order in which they run ----

  // cos and sin of the step's positions along `axis`; gives what attention takes as `rope`.
  int rope(std::vector<float> inv_freq, float factor, int axis);
  // A token's row of the table, times `scale`, or its row of the step's embeddings as it is.
  void embed(BufferId to, std::shared_ptr<Packed> table, float scale);
  // The same columns of both; `to` may be `from`.
  void norm(const std::string& name, BufferId to, BufferId from, Norm norm);
  void linear(const std::string& name, BufferId to, BufferId from, std::vector<LinearPart> parts,
              bool add);
  void gated(const std::string& name, BufferId to, BufferId from, LinearPart gate, LinearPart up,
             Activation activation);
  void activate(const std::string& name, BufferId buffer, Activation activation);
  // Column j of `to` *= the function of column `column` + j of `from`, or of its only one.
  void multiply(const std::string& name, BufferId to, BufferId from, Activation function,
                int64_t column);
  // x := cap * tanh(x / cap)
  void soft_cap(const std::string& name, BufferId buffer, float cap);
  void copy(const std::string& name, BufferId to, BufferId from, int64_t column,
            int64_t from_column, int64_t columns);
  // `to` += `from`
  void add_rows(const std::string& name, BufferId to, BufferId from);
  // `from` holds q, k and v of each token side by side.
  void attention(BufferId to, BufferId from, Attention attention);
  // Which experts a token goes to, by its logits; gives what experts() takes as `routes`.
  int route(const std::string& name, BufferId from, Router router);
  // Adds to `to`.
  void experts(const std::string& name, BufferId to, BufferId from, Mixture mixture);
  // Columns of `from` from `column` on.
  void convolve(const std::string& name, BufferId to, BufferId from, int64_t column, States states,
                Convolution convolution);
  void scan_mamba2(const std::string& name, BufferId to, BufferId from, BufferId steps,
                   States states, Mamba2 mamba);
  void scan_mamba1(const std::string& name, BufferId to, BufferId from, BufferId steps, BufferId bc,
                   States states, Mamba1 mamba);
  void gated_delta(const std::string& name, BufferId to, BufferId from, BufferId decay,
                   BufferId beta, States states, GatedDelta delta);
  // The rows of the chosen tokens.
  void choose(const std::string& name, BufferId to, BufferId from);
  // What follows is the next segment: the caller may read and change buffers in between.
  void cut();

  // ---- steps ----

  // Rows of the embedding, and their width; 0 where there is none.
  int64_t vocabulary() const { return embedding_ ? embedding_->n : 0; }
  int64_t hidden() const { return embedding_ ? embedding_->k : 0; }
  // Axes of positions that a step must bring.
  int axes() const;
  const std::vector<Paging>& pagings() const { return pagings_; }
  const std::vector<StatePaging>& state_pagings() const { return state_pagings_; }
  int segments() const { return static_cast<int>(cuts_.size()) + 1; }
  void take(Step step);
  // Begin a segment on the pool's threads and return at once.
  void start(int segment);
  void wait() { pool_->wait(); }

  // Pairs of a head's elements that this table turns.
  int half(int rope) const { return ropes_.at(rope)->half(); }

  // Raises std::out_of_range where there are no such routes.
  const Routes& routes(int routes) const { return *routes_.at(routes); }

  // A buffer's rows, [count][stride]; they hold until the next take().
  float* rows(BufferId buffer) const { return slots_[buffer]->memory[0].data<float>(); }
  int64_t stride(BufferId buffer) const { return slots_[buffer]->padded(); }
  // Raise std::out_of_range where there is no such buffer.
  int64_t width(BufferId buffer) const { return slots_.at(buffer)->width; }
  bool chosen(BufferId buffer) const { return slots_.at(buffer)->chosen; }
  int64_t count(BufferId buffer) const { return chosen(buffer) ? step_.chosen : step_.tokens; }

  std::vector<OpCost> costs() const;

 private:
  // One buffer: fp32, and the other forms that its readers want.
  struct Slot {
    int64_t width;
    bool chosen;
    int64_t copies = 1;      // rows for each token
    bool converts = false;   // while ops are added: the last writer, or an op behind it, converts
    bool wanted[FORMS] = {};  // by Form
    Buffer memory[FORMS];     // by Form
    int64_t capacity = 0;    // rows

    int64_t padded() const { return Rows{.width = width}.padded(); }
    Rows rows(Form form) const;
    void fit(int64_t rows);
    void convert(int64_t row) const;
  };
  struct Rope {
    std::vector<float> inv_freq;
    float factor;
    int axis;
    Buffer cos, sin;  // [capacity][inv_freq.size()]
    int64_t capacity = 0;

    int half() const { return static_cast<int>(inv_freq.size()); }
    Rotary table() const { return {cos.data<float>(), sin.data<float>(), half()}; }
    void fit(int64_t tokens);
  };
  // The work items of attention layers of one shape, made once a step.
  struct Planned {
    AttentionSpec spec;
    int group;
    AttentionPlan plan;
    double seen;  // (token, token it sees) pairs of the step
    double read;  // tokens whose K and V are read
  };
  struct Op {
    OpCost cost;
    std::function<void(Team&)> run;
    std::function<Work()> work;  // of one run, in the step at hand
  };
  using Parts = std::vector<LinearPart>;

  void add(const std::string& name, std::function<void(Team&)> run,
           std::function<Work()> work = {});
  // An op over states, run(team, spec, rows), where `spec` says how large they are.
  template <class Spec, class Run>
  void add_states(const std::string& name, States states, Spec spec, Run run);
  Lines lines(BufferId buffer) const { return {rows(buffer), stride(buffer)}; }
  // The parts with the rows of `from` in their forms.
  std::vector<Part> views(const Parts& parts, BufferId from) const;
  Work work_of(const Parts& parts, int64_t rows) const;
  // A row for each pair of routes, shared by all layers with as many for a token. Of one shape there
  // are two: what experts read or give (0), and what is between their linears (1).
  BufferId pairs(int use, int64_t width, int64_t top_k);
  Forms forms(BufferId buffer) const;
  Work work_of(const Mixture& mixture) const;
  // Add an op that changes rows of `buffer`, each on its own: change(number, row). They are given
  // in all their forms.
  template <class Change>
  void change_rows(const std::string& name, BufferId buffer, Change change) {
    slots_[buffer]->converts = true;
    add(name, [this, buffer, change = std::move(change)](Team& team) {
      each_row(team, count(buffer), [&](int64_t row) {
        change(row, rows(buffer) + row * stride(buffer));
        slots_[buffer]->convert(row);
      });
    });
  }
  const float* row(BufferId buffer, int64_t index) const {
    return rows(buffer) + index * stride(buffer);
  }
  // Run ops, as one thread of the team.
  void run(Team& team, size_t begin, size_t end);
  // Have `buffer` in `form` here, by an op of its own where its writer does not give it.
  void want(BufferId buffer, Form form);
  // The plan of layers like this one.
  Planned& plan_for(const AttentionSpec& spec, int group);
  void plan(Planned& planned);
  BatchRows batch(int group) const;

  std::shared_ptr<Pool> pool_;
  std::shared_ptr<Packed> embedding_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<std::unique_ptr<Rope>> ropes_;
  std::vector<std::unique_ptr<Planned>> plans_;
  std::vector<Paging> pagings_;
  std::vector<std::unique_ptr<Routes>> routes_;
  std::map<std::tuple<int, int64_t, int64_t>, BufferId> pairs_;
  std::vector<StatePaging> state_pagings_;
  std::vector<Op> ops_;
  std::vector<size_t> cuts_;
  Step step_;
};

}  // namespace octavo
