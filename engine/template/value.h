// The values of a template: Python's, as far as chat templates use them.
#ifndef ENGINE_TEMPLATE_VALUE_H_
#define ENGINE_TEMPLATE_VALUE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/template/budget.h"
#include "engine/template/marked_text.h"

namespace reprise::jinja {

class Value;
struct Builtin;
struct Dict;
struct LoopState;
struct Macro;
struct Method;
struct Namespace;
struct Sequence;

struct None {};
// What a name or attribute that does not exist evaluates to: prints as nothing,
// is false, and an error as soon as anything is to be done with it.
struct Undefined {
  // What the error says: "'x' is undefined". shared: copied with the value
  std::shared_ptr<const std::string> reason;
};

// A value. What it refers to never changes, but for namespaces; those, loops
// and macros belong to the render that made them. So values form no circles,
// and none is deeper than kMaxValueDepth.
class Value {
 public:
  // shared: values are copied freely and immutable
  using TextRef = std::shared_ptr<const Text>;
  using SequenceRef = std::shared_ptr<const Sequence>;
  using DictRef = std::shared_ptr<const Dict>;
  using MethodRef = std::shared_ptr<const Method>;
  using Any = std::variant<None, Undefined, bool, int64_t, double, TextRef,
                           SequenceRef, DictRef, Namespace*, LoopState*,
                           const Macro*, const Builtin*, MethodRef>;

  Value() = default;                        // None
  Value(Any any) : any_(std::move(any)) {}  // NOLINT: converts on purpose
  static Value Bool(bool value) { return Value(Any(value)); }
  static Value Int(int64_t value) { return Value(Any(value)); }
  static Value Float(double value) { return Value(Any(value)); }
  static Value String(Text text) {
    return Value(Any(std::make_shared<const Text>(std::move(text))));
  }
  static Value String(TextView text) { return String(Text(text)); }
  static Value String(std::string_view utf8) { return String(FromUtf8(utf8)); }
  static Value Missing(std::string reason);

  const Any& any() const { return any_; }
  template <typename T>
  const T* get() const {
    return std::get_if<T>(&any_);
  }

  bool undefined() const { return get<Undefined>() != nullptr; }
  bool none() const { return get<None>() != nullptr; }
  const Text* text() const;          // null if it is no string
  const Sequence* sequence() const;  // null if it is none
  const Dict* dict() const;          // null if it is none

  // Levels of lists and dicts, 0 for what has no parts.
  int depth() const;
  // For messages: "str", "list", "dict".
  std::string_view type() const;
  // Python's bool().
  bool truthy() const;

 private:
  Any any_;
};

// How a sequence behaves where the kinds differ. Views and generators cannot be
// indexed; a generator has no length, is always true and is used up by the
// first loop over it.
enum class SequenceKind { kList, kTuple, kRange, kView, kGenerator };

struct Sequence {
  SequenceKind kind = SequenceKind::kList;
  std::vector<Value> items;
  int depth = 1;
  mutable bool used_up = false;  // generators; of one render, so of one thread
};

struct Dict {
  std::vector<std::pair<Value, Value>> entries;  // in the order of insertion
  int depth = 1;

  // The value of that key; null if there is none.
  const Value* Find(TextView key) const;
};

// namespace(): what assignments inside a loop reach.
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
};

// `loop` inside a loop.
struct LoopState {
  Value items;
  size_t index = 0;
};

// A method of a value that was named and not called yet.
struct Method {
  Value self;
  std::string name;
};

// InvalidArgument beyond kMaxValueDepth, ResourceExhausted of the budget.
absl::StatusOr<Value> MakeSequence(std::vector<Value> items, SequenceKind kind,
                                   Budget& budget);
absl::StatusOr<Value> MakeDict(std::vector<std::pair<Value, Value>> entries,
                               Budget& budget);

// What a loop over `value` goes through: elements, keys, characters. Marks a
// generator as used up. InvalidArgument if it is nothing to loop over.
absl::StatusOr<std::vector<Value>> Iterate(const Value& value, Budget& budget);

// Python's ==. An int, a float and a bool are equal if their numbers are.
absl::StatusOr<bool> Equals(const Value& a, const Value& b, Budget& budget);

// Python's < as a sign. InvalidArgument for what has no order.
absl::StatusOr<int> Order(const Value& a, const Value& b, Budget& budget);

// Python's len().
absl::StatusOr<int64_t> Length(const Value& value);

}  // namespace reprise::jinja

#endif  // ENGINE_TEMPLATE_VALUE_H_
