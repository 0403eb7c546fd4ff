#include "engine/template/builtin.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"

namespace reprise::jinja {
namespace {

absl::Status Wrong(const Value& value, std::string_view wanted) {
  if (const auto* undefined = value.get<Undefined>()) {
    return absl::InvalidArgumentError(*undefined->reason);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a ", ToAbsl(value.type()), " is no ", ToAbsl(wanted)));
}

const Builtin* FindIn(std::span<const Builtin> table, std::string_view name) {
  const auto it = std::find_if(
      table.begin(), table.end(),
      [name](const Builtin& builtin) { return builtin.name == name; });
  return it == table.end() ? nullptr : &*it;
}

// The arguments in the order of the parameters.
absl::StatusOr<std::vector<const Value*>> Bind(const Builtin& builtin,
                                               const Arguments& arguments) {
  const std::vector<std::string_view>& parameters = builtin.parameters;
  const auto fail = [&builtin](auto... parts) {
    return absl::InvalidArgumentError(
        absl::StrCat(ToAbsl(builtin.name), "() ", parts...));
  };
  if (arguments.positional.size() > parameters.size()) {
    return fail("takes at most ", parameters.size(), " arguments");
  }
  std::vector<const Value*> values(parameters.size(), nullptr);
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    values[i] = &arguments.positional[i];
  }
  for (const auto& [name, value] : arguments.named) {
    const auto it = std::find(parameters.begin(), parameters.end(), name);
    if (it == parameters.end()) return fail("has no argument '", name, "'");
    const Value*& slot = values[static_cast<size_t>(it - parameters.begin())];
    if (slot != nullptr) return fail("got '", name, "' twice");
    slot = &value;
  }
  for (size_t i = 0; i < builtin.required; ++i) {
    if (values[i] == nullptr) {
      return fail("needs the argument '", ToAbsl(parameters[i]), "'");
    }
  }
  return values;
}

}  // namespace

absl::Status Level::Check() const {
  if (context_.depth <= kMaxRunDepth) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("more than ", kMaxRunDepth,
                   " expressions, blocks and calls inside each "
                   "other"));
}

absl::StatusOr<int64_t> BoundArguments::Int(size_t parameter,
                                            int64_t otherwise) const {
  const Value* value = values_[parameter];
  if (value == nullptr || value->none()) return otherwise;
  if (const bool* flag = value->get<bool>()) return *flag ? 1 : 0;
  if (const int64_t* number = value->get<int64_t>()) return *number;
  return Wrong(*value, "int");
}

absl::StatusOr<bool> BoundArguments::Bool(size_t parameter,
                                          bool otherwise) const {
  const Value* value = values_[parameter];
  return value == nullptr ? otherwise : value->truthy();
}

absl::StatusOr<TextView> BoundArguments::String(size_t parameter,
                                                TextView otherwise) const {
  const Value* value = values_[parameter];
  if (value == nullptr || value->none()) return otherwise;
  if (const Text* text = value->text()) return TextView(*text);
  return Wrong(*value, "str");
}

absl::StatusOr<Value> Invoke(const Builtin& builtin, Context& context,
                             const Value& self, const Arguments& arguments) {
  RETURN_IF_ERROR(context.budget.Steps(1));
  const Level level(context);
  RETURN_IF_ERROR(level.Check());
  if (builtin.free_function != nullptr) {
    return builtin.free_function(context, self, arguments);
  }
  ASSIGN_OR_RETURN(std::vector<const Value*> values, Bind(builtin, arguments));
  return builtin.function(context, self, BoundArguments(std::move(values)));
}

const Builtin* FindFilter(std::string_view name) {
  for (const auto table : {TextFilters(), SequenceFilters(), ValueFilters()}) {
    if (const Builtin* found = FindIn(table, name)) return found;
  }
  return nullptr;
}

const Builtin* FindTest(std::string_view name) { return FindIn(Tests(), name); }

const Builtin* FindFunction(std::string_view name) {
  return FindIn(Functions(), name);
}

const Builtin* FindMethod(const Value& self, std::string_view name) {
  if (self.text() != nullptr) return FindIn(TextMethods(), name);
  if (self.dict() != nullptr) return FindIn(DictMethods(), name);
  if (self.sequence() != nullptr) return FindIn(SequenceMethods(), name);
  return self.get<LoopState*>() != nullptr ? FindIn(LoopMethods(), name)
                                           : nullptr;
}

}  // namespace reprise::jinja
