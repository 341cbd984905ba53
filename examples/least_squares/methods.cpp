#include "examples/least_squares/methods.hpp"

#include <cmath>

#include "examples/common/collect.hpp"
#include "ops/collectives.hpp"
#include "ops/neighbor_allreduce.hpp"

namespace bluefog::examples {
namespace {

BufferView view_of(Eigen::VectorXd& vector) {
  BufferView view;
  view.data = vector.data();
  view.count = vector.size();
  view.dtype = Dtype::Float64;
  return view;
}

}  // namespace

const char* name_of(Method method) {
  switch (method) {
    case Method::GradientAllreduce:
      return "gradient all-reduce";
    case Method::Atc:
      return "ATC";
    case Method::Awc:
      return "AWC";
  }
  return "?";
}

std::vector<double> run_method(Context& context, Method method, const LeastSquaresPart& part,
                               const Eigen::VectorXd& solution, const Schedule& schedule,
                               double step_size, std::int64_t steps) {
  Eigen::VectorXd x = Eigen::VectorXd::Zero(solution.size());
  std::vector<double> errors;
  for (std::int64_t step = 0; step < steps; ++step) {
    Eigen::VectorXd gradient = part.gradient(x);
    const auto plan = schedule.plan_for(context.rank(), step);
    switch (method) {
      case Method::GradientAllreduce:
        ops::allreduce(context, view_of(gradient));
        x -= step_size * gradient;
        break;
      case Method::Atc:
        x -= step_size * gradient;
        ops::neighbor_allreduce(context, view_of(x), plan);
        break;
      case Method::Awc:
        ops::neighbor_allreduce(context, view_of(x), plan);
        x -= step_size * gradient;
        break;
    }
    const double sum = sum_over_ranks(context, (x - solution).squaredNorm());
    errors.push_back(std::sqrt(sum / context.size()) / solution.norm());
  }
  return errors;
}

}  // namespace bluefog::examples
