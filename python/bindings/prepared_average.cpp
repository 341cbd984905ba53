#include "python/bindings/prepared_average.hpp"

#include <utility>

#include "bluefog_cpp/base/settings/setting_values.hpp"
#include "ops/calls/validation.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "python/bindings/tensor_view.hpp"

namespace bluefog::python {

SynchronisationChoice choice_of(std::string_view synchronisation) {
  return parse_synchronisation("synchronisation", synchronisation);
}

PreparedAverage::PreparedAverage(std::shared_ptr<Context> context, at::Tensor tensor,
                                 const std::string& name, std::string_view synchronisation)
    : context_(std::move(context)),
      tensor_(std::move(tensor)),
      given_name_(name),
      synchronisation_(choice_of(synchronisation)) {
  look();
  ops::check_in_and_out(*context_, OpKind::NeighborAllreduce, view_, view_);
}

bool PreparedAverage::run(const std::shared_ptr<NeighborPlan>& plan, bool checked) {
  if (!is_plain(tensor_)) {
    return false;
  }
  if (!is_as_it_was()) {
    ops::validate(*context_, [this] { look(); });
  }
  ops::neighbor_allreduce(*context_, view_, plan,
                          {.name = name_,
                           .check = checked ? ops::PlanCheck::Checked : ops::PlanCheck::Trusted,
                           .synchronisation = synchronisation_});
  note_change(tensor_);
  return true;
}

// A copy that is made when it is written comes about here, as in `look`.
bool PreparedAverage::is_as_it_was() const {
  return tensor_.mutable_data_ptr() == view_.data && tensor_.sizes() == at::IntArrayRef(sizes_) &&
         tensor_.scalar_type() == scalar_type_;
}

void PreparedAverage::look() {
  view_ = view_of(tensor_);
  name_ = named(given_name_, tensor_);
  sizes_ = tensor_.sizes().vec();
  scalar_type_ = tensor_.scalar_type();
}

}  // namespace bluefog::python
