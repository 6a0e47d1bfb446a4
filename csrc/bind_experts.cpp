// Program's route() and experts() for Python.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bind.h"
#include "border.h"
#include "names.h"
#include "program.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace octavo {
namespace {

using Linear = std::pair<std::shared_ptr<Packed>, Values>;

void check_router(const Router& router) {
  require(router.experts <= kMostExperts, "route: too many experts");
  require(router.groups > 0 && router.experts % router.groups == 0,
          "route: experts are not cut into equal groups");
  require(router.top_groups > 0 && router.top_groups <= router.groups,
          "route: there are not so many groups");
  const int64_t size = router.experts / router.groups;
  require(router.top_k > 0 && router.top_k <= router.top_groups * size,
          "route: there are not so many experts");
  require(router.groups == 1 || size > 1 || router.group_score == GroupScore::max,
          "route: a group has less than two experts");
  require(router.bias.empty() || static_cast<int64_t>(router.bias.size()) == router.experts,
          "route: bias is not one an expert");
}

int add_route(Program& program, const std::string& name, BufferId from, int64_t top_k,
              const std::string& scoring, bool normalise, float eps, float scale,
              const Values& bias, int64_t groups, int64_t top_groups,
              const std::string& group_score) {
  require(!program.chosen(from), "route: its rows are all tokens");
  Router router{.experts = program.width(from),
                .top_k = top_k,
                .scoring = named<Scoring>(kScorings, scoring),
                .normalise = normalise,
                .eps = eps,
                .scale = scale,
                .bias = floats(bias),
                .groups = groups,
                .top_groups = top_groups,
                .group_score = named<GroupScore>(kGroupScores, group_score)};
  check_router(router);
  return program.route(name, from, std::move(router));
}

ExpertLinear linear(const Linear& given, int64_t n, int64_t k) {
  const auto& [weight, bias] = given;
  require(weight != nullptr, "experts: None is no weight");
  require(weight->n == n && weight->k == k, "experts: weights of another shape");
  require(!bias || static_cast<int64_t>(bias->size()) == n, "experts: bias of another size");
  return {weight, floats(bias)};
}

std::vector<Expert> experts_of(const std::vector<Linear>& gates, const std::vector<Linear>& ups,
                               const std::vector<Linear>& downs, int64_t inputs,
                               int64_t outputs) {
  require(!ups.empty() && ups[0].first != nullptr, "experts: None is no weight");
  const int64_t inner = ups[0].first->n;
  std::vector<Expert> experts;
  for (size_t e = 0; e < ups.size(); e++)
    experts.push_back({gates.empty() ? ExpertLinear{} : linear(gates[e], inner, inputs),
                       linear(ups[e], inner, inputs), linear(downs[e], outputs, inner)});
  return experts;
}

void add_experts(Program& program, const std::string& name, BufferId to, BufferId from, int routes,
                 const std::vector<Linear>& gates, const std::vector<Linear>& ups,
                 const std::vector<Linear>& downs, const std::string& activation, float limit,
                 float shift, bool weigh_input) {
  require(to != from && !program.chosen(to) && !program.chosen(from),
          "experts: not two buffers of all tokens");
  const auto count = static_cast<size_t>(program.routes(routes).experts());
  require((gates.empty() || gates.size() == count) && ups.size() == count && downs.size() == count,
          "experts: not as many as are routed to");
  require(limit >= 0, "experts: limit must not be negative");
  program.experts(
      name, to, from,
      {.routes = routes,
       .experts = experts_of(gates, ups, downs, program.width(from), program.width(to)),
       .gating = {.function = named<Activation>(kActivations, activation),
                  .limit = limit,
                  .shift = shift},
       .weigh_input = weigh_input});
}

}  // namespace

void bind_experts(nb::module_& module) {
  nb::borrow<nb::class_<Program>>(module.attr("Program"))
      .def("route", &add_route, "name"_a, "source"_a, nb::kw_only(), "top_k"_a, "scoring"_a,
           "normalise"_a, "eps"_a = 1e-20f, "scale"_a = 1.f, "bias"_a = nb::none(), "groups"_a = 1,
           "top_groups"_a = 1, "group_score"_a = "max")
      .def("experts", &add_experts, "name"_a, "to"_a, "source"_a, "routes"_a, "gates"_a, "ups"_a,
           "downs"_a, "activation"_a, nb::kw_only(), "limit"_a = 0.f, "shift"_a = 0.f,
           "weigh_input"_a = false);
}

}  // namespace octavo
