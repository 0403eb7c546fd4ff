// What filters, tests, methods and global functions have in common: a name,
// parameters as Python has them, and a function.
#ifndef ENGINE_TEMPLATE_BUILTIN_H_
#define ENGINE_TEMPLATE_BUILTIN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/template/budget.h"
#include "engine/template/value.h"

namespace reprise::jinja {

// What belongs to one render.
struct Context {
  Budget budget;
  int64_t now_unix_ms = 0;
  int depth = 0;  // of what is evaluated inside each other; see Level
  // Made by the template; here because values only point to them.
  std::vector<std::unique_ptr<Namespace>> namespaces = {};
};

// A level of recursion, while it lives.
class Level {
 public:
  explicit Level(Context& context) : context_(context) { ++context_.depth; }
  ~Level() { --context_.depth; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

  // ResourceExhausted beyond kMaxRunDepth.
  absl::Status Check() const;

 private:
  Context& context_;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Arguments by parameter, in the order of Builtin::parameters.
class BoundArguments {
 public:
  explicit BoundArguments(std::vector<const Value*> values)
      : values_(std::move(values)) {}

  // Null if it was not given.
  const Value* operator[](size_t parameter) const { return values_[parameter]; }

  // The value, or `otherwise`; None counts as not given. InvalidArgument,
  // naming the type, for one of another type. A text is the argument's own.
  absl::StatusOr<int64_t> Int(size_t parameter, int64_t otherwise) const;
  absl::StatusOr<bool> Bool(size_t parameter, bool otherwise) const;
  absl::StatusOr<TextView> String(size_t parameter, TextView otherwise) const;

 private:
  std::vector<const Value*> values_;
};

struct Builtin {
  std::string_view name;
  // Filters: the value before the bar. Tests: before "is". Methods: before the
  // dot. Functions: None.
  using Function = absl::StatusOr<Value> (*)(Context& context,
                                             const Value& self,
                                             const BoundArguments& arguments);
  // The same with arguments of any number and name.
  using FreeFunction = absl::StatusOr<Value> (*)(Context& context,
                                                 const Value& self,
                                                 const Arguments& arguments);
  Function function = nullptr;  // this or free_function
  std::vector<std::string_view> parameters = {};
  size_t required = 0;  // the first of them
  FreeFunction free_function = nullptr;
};

// InvalidArgument, naming the function, for arguments that do not fit, and
// before that, with the name that is missing, for one that is undefined where
// the function looks at it; the function's own errors.
absl::StatusOr<Value> Invoke(const Builtin& builtin, Context& context,
                             const Value& self, const Arguments& arguments);

// Each null if there is none of that name.
const Builtin* FindFilter(std::string_view name);
const Builtin* FindTest(std::string_view name);
const Builtin* FindFunction(std::string_view name);
const Builtin* FindMethod(const Value& self, std::string_view name);

// The tables, each in its file.
std::span<const Builtin> TextFilters();
std::span<const Builtin> SequenceFilters();
std::span<const Builtin> ValueFilters();
std::span<const Builtin> Tests();
std::span<const Builtin> Functions();
std::span<const Builtin> TextMethods();
std::span<const Builtin> DictMethods();
std::span<const Builtin> SequenceMethods();
std::span<const Builtin> LoopMethods();

}  // namespace reprise::jinja

#endif  // ENGINE_TEMPLATE_BUILTIN_H_
