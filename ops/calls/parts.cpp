#include "ops/parts.hpp"

#include <fmt/format.h>

#include <cstring>
#include <string_view>
#include <utility>

#include "bluefog_cpp/context/context_core.hpp"
#include "ops/calls/exchanges/parts_exchange.hpp"
#include "ops/calls/group.hpp"
#include "ops/calls/series.hpp"
#include "ops/calls/validation.hpp"

namespace bluefog::ops {
namespace {

/// The checks of one call.
class Check {
 public:
  Check(const Context& context, OpKind kind, Dtype dtype)
      : context_(context), kind_(kind), dtype_(dtype) {}

  template <typename View>
  void list(std::string_view what, const std::vector<View>& parts, std::size_t expected) const {
    if (parts.size() != expected) {
      throw InvalidArgument(fmt::format("{}: {}: expected {} buffers, found {}",
                                        where(context_, kind_), what, expected, parts.size()));
    }
    for (const View& part : parts) {
      buffer(part);
    }
  }
  void buffer(const ConstBufferView& part) const {
    check_buffer(context_, kind_, part);
    if (part.dtype != dtype_) {
      throw InvalidArgument(fmt::format("{}: expected buffers of one dtype, found {} and {}",
                                        where(context_, kind_), name_of(dtype_),
                                        name_of(part.dtype)));
    }
  }
  void root(int rank) const {
    if (rank < 0 || rank >= context_.size()) {
      throw InvalidArgument(fmt::format("{}: expected a root in 0 to {}, found {}",
                                        where(context_, kind_), context_.size() - 1, rank));
    }
  }
  void own(const ConstBufferView& input, const BufferView& output) const {
    if (input.count != output.count) {
      throw InvalidArgument(fmt::format(
          "{}: expected this rank's own part to have the size of its place, {} elements, found {}",
          where(context_, kind_), output.count, input.count));
    }
  }
  void apart(const ConstBufferView& sent, const BufferView& taken) const {
    check_sent_apart(context_, kind_, sent, taken);
  }

 private:
  const Context& context_;
  OpKind kind_;
  Dtype dtype_;
};

const std::byte* bytes_at(const ConstBufferView& view) {
  return static_cast<const std::byte*>(view.data);
}

void copy_own(const ConstBufferView& from, const BufferView& to) {
  if (from.data != to.data && from.count > 0) {
    std::memmove(to.data, from.data, from.bytes());
  }
}

/// Takes what the other ranks have for this one, in the order of the ranks behind it.
TakenParts take_from_others(const Context& context, const std::vector<BufferView>& outputs) {
  TakenParts taken;
  for (int step = 1; step < context.size(); ++step) {
    const int source = (context.rank() + context.size() - step) % context.size();
    const BufferView& output = outputs[static_cast<std::size_t>(source)];
    taken.push_back(
        {.source = source, .place = static_cast<std::byte*>(output.data), .bytes = output.bytes()});
  }
  return taken;
}

/// Sends each other rank its part, that of the next rank first: no two send to the same one first.
SentParts send_to_others(const Context& context, const std::vector<ConstBufferView>& inputs) {
  SentParts sent;
  for (int step = 1; step < context.size(); ++step) {
    const int reader = (context.rank() + step) % context.size();
    const ConstBufferView& input = inputs[static_cast<std::size_t>(reader)];
    sent.push_back(
        {.data = bytes_at(input), .bytes = input.bytes(), .readers = {{.rank = reader}}});
  }
  return sent;
}

class Call {
 public:
  Call(Context& context, OpKind kind, Dtype dtype, std::string name, SentParts sent,
       TakenParts taken)
      : engine_(context.core().engine()),
        operation_(engine_.make_operation<PartsExchange>(kind, dtype, std::move(name),
                                                         std::move(sent), std::move(taken))) {}
  template <typename View>
  Call& keep(std::vector<View>& views) {
    for (View& view : views) {
      keep(view);
    }
    return *this;
  }
  Call& keep(BufferView& view) { return keep(std::exchange(view.owner, nullptr)); }
  Call& keep(ConstBufferView& view) { return keep(std::exchange(view.owner, nullptr)); }

  [[nodiscard]] Work submit() { return engine_.submit(take()); }
  [[nodiscard]] std::shared_ptr<Operation> take() { return std::move(operation_); }

 private:
  Call& keep(std::shared_ptr<const void> owner) {
    operation_->keep_alive(std::move(owner));
    return *this;
  }

  Engine& engine_;
  std::shared_ptr<PartsExchange> operation_;
};

std::size_t size_of_group(const Context& context) {
  return static_cast<std::size_t>(context.size());
}

std::string root_name(const OpOptions& options, int root) {
  return fingerprint_name(options.name, fmt::format("root {}", root));
}

}  // namespace

Work allgather_parts_nonblocking(Context& context, ConstBufferView input,
                                 std::vector<BufferView> outputs, const OpOptions& options) {
  std::shared_ptr<Operation> operation;
  validate(context, [&] {
    operation = make_allgather_parts(context, std::move(input), std::move(outputs), options);
  });
  return context.core().engine().submit(std::move(operation));
}

std::shared_ptr<Operation> make_allgather_parts(Context& context, ConstBufferView input,
                                                std::vector<BufferView> outputs,
                                                const OpOptions& options) {
  constexpr OpKind kKind = OpKind::Allgather;
  const auto own = static_cast<std::size_t>(context.rank());
  const Check check(context, kKind, input.dtype);
  check.buffer(input);
  check.list("outputs", outputs, size_of_group(context));
  check.own(input, outputs[own]);
  // Sends from the result: the input may lie elsewhere in its memory.
  copy_own(input, outputs[own]);
  SentParts sent;
  const Group group = Group::everyone(context);
  sent.push_back({.data = bytes_at(outputs[own]),
                  .bytes = input.bytes(),
                  .readers = {group.peers.begin(), group.peers.end()}});
  TakenParts taken = take_from_others(context, outputs);
  return Call(context, kKind, input.dtype, options.name, std::move(sent), std::move(taken))
      .keep(outputs)
      .take();
}

Work gather_nonblocking(Context& context, ConstBufferView input, std::vector<BufferView> outputs,
                        int root, const OpOptions& options) {
  constexpr OpKind kKind = OpKind::Gather;
  const auto own = static_cast<std::size_t>(context.rank());
  const bool is_root = context.rank() == root;
  validate(context, [&] {
    const Check check(context, kKind, input.dtype);
    check.buffer(input);
    check.root(root);
    check.list("outputs", outputs, is_root ? size_of_group(context) : 0);
    if (is_root) {
      check.own(input, outputs[own]);
    }
  });
  SentParts sent;
  TakenParts taken;
  if (is_root) {
    copy_own(input, outputs[own]);
    taken = take_from_others(context, outputs);
  } else {
    sent.push_back({.data = bytes_at(input), .bytes = input.bytes(), .readers = {{.rank = root}}});
  }
  return Call(context, kKind, input.dtype, root_name(options, root), std::move(sent),
              std::move(taken))
      .keep(outputs)
      .keep(input)
      .submit();
}

Work scatter_nonblocking(Context& context, std::vector<ConstBufferView> inputs, BufferView output,
                         int root, const OpOptions& options) {
  constexpr OpKind kKind = OpKind::Scatter;
  const auto own = static_cast<std::size_t>(context.rank());
  const bool is_root = context.rank() == root;
  validate(context, [&] {
    const Check check(context, kKind, output.dtype);
    check.buffer(output);
    check.root(root);
    check.list("inputs", inputs, is_root ? size_of_group(context) : 0);
    for (std::size_t part = 0; part < inputs.size(); ++part) {
      part == own ? check.own(inputs[own], output) : check.apart(inputs[part], output);
    }
  });
  SentParts sent;
  TakenParts taken;
  if (is_root) {
    copy_own(inputs[own], output);
    sent = send_to_others(context, inputs);
  } else {
    taken.push_back(
        {.source = root, .place = static_cast<std::byte*>(output.data), .bytes = output.bytes()});
  }
  return Call(context, kKind, output.dtype, root_name(options, root), std::move(sent),
              std::move(taken))
      .keep(inputs)
      .keep(output)
      .submit();
}

Work alltoall_nonblocking(Context& context, std::vector<ConstBufferView> inputs,
                          std::vector<BufferView> outputs, const OpOptions& options) {
  constexpr OpKind kKind = OpKind::Alltoall;
  const auto own = static_cast<std::size_t>(context.rank());
  const Dtype dtype = inputs.empty() ? Dtype::UInt8 : inputs.front().dtype;
  validate(context, [&] {
    const Check check(context, kKind, dtype);
    check.list("inputs", inputs, size_of_group(context));
    check.list("outputs", outputs, size_of_group(context));
    check.own(inputs[own], outputs[own]);
    for (std::size_t from = 0; from < inputs.size(); ++from) {
      for (std::size_t to = 0; to < outputs.size(); ++to) {
        if (from != own || to != own) {
          check.apart(inputs[from], outputs[to]);
        }
      }
    }
  });
  copy_own(inputs[own], outputs[own]);
  return Call(context, kKind, dtype, options.name, send_to_others(context, inputs),
              take_from_others(context, outputs))
      .keep(inputs)
      .keep(outputs)
      .submit();
}

}  // namespace bluefog::ops
