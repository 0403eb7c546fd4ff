// Attributes, items and slices: object.name, object[key], object[a:b:c].
#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/template/builtin.h"
#include "engine/template/operators.h"

namespace reprise::jinja {
namespace {

// Methods that Python has and this has not. Without these lists they would be
// undefined, and a template that asks for them would take another way.
constexpr std::string_view kOtherTextMethods[] = {
    "casefold",   "center",      "encode",  "expandtabs", "format",
    "format_map", "isalnum",     "isascii", "isdecimal",  "isidentifier",
    "isnumeric",  "isprintable", "istitle", "ljust",      "maketrans",
    "partition",  "rpartition",  "rjust",   "swapcase",   "translate",
    "zfill",      "rindex"};
constexpr std::string_view kOtherDictMethods[] = {"copy", "fromkeys"};
// These change what they are called on; Jinja's immutable sandbox, in which
// Hugging Face renders chat templates, refuses them.
constexpr std::string_view kListChanges[] = {
    "append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"};
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem",
                                             "setdefault", "update"};

bool IsIn(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Why the sandbox keeps the attribute from templates; empty if it does not.
std::string WhyUnsafe(const Value& object, std::string_view name) {
  const Sequence* list = object.sequence();
  const bool is_list = list != nullptr && list->kind == SequenceKind::kList;
  // A dict may have such names as keys.
  if (name.starts_with("__") && name.ends_with("__") &&
      object.dict() == nullptr) {
    return absl::StrCat("the attribute '", ToAbsl(name), "' is private");
  }
  if ((is_list && IsIn(kListChanges, name)) ||
      (object.dict() != nullptr && IsIn(kDictChanges, name))) {
    return absl::StrCat("'", ToAbsl(name), "' would change a ",
                        ToAbsl(object.type()), ", which templates may not");
  }
  return "";
}

// Unimplemented for methods that Python has and this has not.
absl::Status CheckSupported(const Value& object, std::string_view name) {
  const Sequence* list = object.sequence();
  const bool is_list = list != nullptr && list->kind == SequenceKind::kList;
  if ((object.text() != nullptr && IsIn(kOtherTextMethods, name)) ||
      (object.dict() != nullptr && IsIn(kOtherDictMethods, name)) ||
      (is_list && name == "copy")) {
    return absl::UnimplementedError(
        absl::StrCat("the method '", ToAbsl(name), "' of a ",
                     ToAbsl(object.type()), " is not supported"));
  }
  return absl::OkStatus();
}

Value MissingAttribute(const Value& object, std::string_view name) {
  return Value::Missing(absl::StrCat("a ", ToAbsl(object.type()),
                                     " has no attribute '", ToAbsl(name), "'"));
}

Value LoopAttribute(const LoopState& loop, std::string_view name) {
  const std::vector<Value>& items = loop.items.sequence()->items;
  const auto index = static_cast<int64_t>(loop.index);
  const auto length = static_cast<int64_t>(items.size());
  if (name == "index") return Value::Int(index + 1);
  if (name == "index0") return Value::Int(index);
  if (name == "revindex") return Value::Int(length - index);
  if (name == "revindex0") return Value::Int(length - index - 1);
  if (name == "first") return Value::Bool(index == 0);
  if (name == "last") return Value::Bool(index + 1 == length);
  if (name == "length") return Value::Int(length);
  // Of a loop in a recursive one; none is.
  if (name == "depth") return Value::Int(1);
  if (name == "depth0") return Value::Int(0);
  if (name == "previtem") {
    return index > 0 ? items[loop.index - 1]
                     : Value::Missing("there is no previous item");
  }
  if (name == "nextitem") {
    return index + 1 < length ? items[loop.index + 1]
                              : Value::Missing("there is no next item");
  }
  return Value::Missing(
      absl::StrCat("'loop' has no attribute '", ToAbsl(name), "'"));
}

Value Attribute(const Namespace& space, std::string_view name) {
  for (const auto& [key, value] : space.attributes) {
    if (key == name) return value;
  }
  return Value::Missing(
      absl::StrCat("the namespace has no attribute '", ToAbsl(name), "'"));
}

// The attribute in the narrow sense: a method, or one of an object of Jinja's.
absl::StatusOr<Value> FindAttribute(const Value& object,
                                    const std::string& name, Budget& budget) {
  RETURN_IF_ERROR(CheckSupported(object, name));
  if (FindMethod(object, name) != nullptr) {
    return Value(
        Value::MethodRef(std::make_shared<const Method>(Method{object, name})));
  }
  if (const auto* space = object.get<Namespace*>()) {
    RETURN_IF_ERROR(budget.Search((*space)->attributes.size()));
    return Attribute(**space, name);
  }
  if (const auto* loop = object.get<LoopState*>()) {
    if (name == "changed") {
      return absl::UnimplementedError("'loop.changed' is not supported");
    }
    return LoopAttribute(**loop, name);
  }
  return MissingAttribute(object, name);
}

// Where Python's index `index` lies among `size`; `size` if it is outside.
size_t Place(int64_t index, size_t size) {
  const auto count = static_cast<int64_t>(size);
  if (index < 0) index += count;
  return index < 0 || index >= count ? size : static_cast<size_t>(index);
}

bool CanBeIndexed(const Sequence* list) {
  return list != nullptr && list->kind != SequenceKind::kView &&
         list->kind != SequenceKind::kGenerator;
}

// The places of a slice: `count` of them, `stride` apart.
struct SlicePlaces {
  int64_t first = 0;
  int64_t stride = 1;
  size_t count = 0;

  size_t operator[](size_t i) const {
    return static_cast<size_t>(first + static_cast<int64_t>(i) * stride);
  }
};

// As Python's slice.indices.
absl::StatusOr<SlicePlaces> FindSlice(const Value& start, const Value& stop,
                                      const Value& step, size_t size) {
  const auto number = [](const Value& value,
                         int64_t otherwise) -> absl::StatusOr<int64_t> {
    if (value.none()) return otherwise;
    RETURN_IF_ERROR(CheckDefined(value));
    if (const bool* flag = value.get<bool>()) return *flag ? 1 : 0;
    if (const int64_t* i = value.get<int64_t>()) return *i;
    return absl::InvalidArgumentError(
        absl::StrCat("a ", ToAbsl(value.type()), " is no place in a slice"));
  };
  ASSIGN_OR_RETURN(const int64_t step_given, number(step, 1));
  if (step_given == 0) {
    return absl::InvalidArgumentError("a slice's step is zero");
  }
  const auto count = static_cast<int64_t>(size);
  // Beyond the whole length all strides do the same.
  const int64_t stride = std::clamp(step_given, -count - 1, count + 1);
  const int64_t low = stride < 0 ? -1 : 0;
  const int64_t high = stride < 0 ? count - 1 : count;
  const auto clamp = [&](int64_t place) {
    if (place < 0) place = place < -count ? low : place + count;
    return std::clamp(place, low, high);
  };
  ASSIGN_OR_RETURN(int64_t at, number(start, stride < 0 ? high : low));
  ASSIGN_OR_RETURN(int64_t end, number(stop, stride < 0 ? low : high));
  // The defaults are places already: -1 among them stands for before the first.
  if (!start.none()) at = clamp(at);
  if (!stop.none()) end = clamp(end);
  SlicePlaces places{at, stride, 0};
  const int64_t span = stride < 0 ? at - end : end - at;
  const int64_t pace = stride < 0 ? -stride : stride;
  if (span > 0) places.count = static_cast<size_t>((span + pace - 1) / pace);
  return places;
}

}  // namespace

absl::StatusOr<Value> GetAttribute(const Value& object, const std::string& name,
                                   Budget& budget) {
  RETURN_IF_ERROR(CheckDefined(object));
  // Undefined, as in the sandbox: only its use is an error.
  std::string unsafe = WhyUnsafe(object, name);
  if (!unsafe.empty()) return Value::Missing(std::move(unsafe));
  ASSIGN_OR_RETURN(Value attribute, FindAttribute(object, name, budget));
  const Dict* dict = object.dict();
  if (!attribute.undefined() || dict == nullptr) return attribute;
  RETURN_IF_ERROR(budget.Steps(dict->entries.size()));
  const Value* found = dict->Find(FromUtf8(name));
  return found == nullptr ? attribute : *found;
}

absl::StatusOr<Value> GetItem(const Value& object, const Value& key,
                              Budget& budget) {
  RETURN_IF_ERROR(CheckDefined(object));
  if (const Dict* dict = object.dict()) {
    for (const auto& [name, value] : dict->entries) {
      ASSIGN_OR_RETURN(const bool equal, Equals(name, key, budget));
      if (equal) return value;
    }
  }
  const bool flag = key.get<bool>() != nullptr && *key.get<bool>();
  const int64_t* number = key.get<int64_t>();
  if (number != nullptr || key.get<bool>() != nullptr) {
    const int64_t index = number != nullptr ? *number : (flag ? 1 : 0);
    if (const Text* text = object.text()) {
      const size_t place = Place(index, text->size());
      if (place < text->size()) return Value::String(Text(1, (*text)[place]));
    } else if (CanBeIndexed(object.sequence())) {
      const std::vector<Value>& items = object.sequence()->items;
      const size_t place = Place(index, items.size());
      if (place < items.size()) return items[place];
    }
    return Value::Missing(
        absl::StrCat("a ", ToAbsl(object.type()), " has no item ", index));
  }
  if (const Text* text = key.text()) {
    RETURN_IF_ERROR(budget.Build(text->size()));
    const std::string name = ToUtf8(*text);
    std::string unsafe = WhyUnsafe(object, name);
    if (!unsafe.empty()) return Value::Missing(std::move(unsafe));
    return FindAttribute(object, name, budget);
  }
  return Value::Missing(
      absl::StrCat("a ", ToAbsl(object.type()), " has no such item"));
}

absl::StatusOr<Value> GetSlice(const Value& object, const Value& start,
                               const Value& stop, const Value& step,
                               Budget& budget) {
  RETURN_IF_ERROR(CheckDefined(object));
  const Text* text = object.text();
  const Sequence* list = object.sequence();
  if (text == nullptr && !CanBeIndexed(list)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a ", ToAbsl(object.type()), " has no slices"));
  }
  const size_t size = text != nullptr ? text->size() : list->items.size();
  ASSIGN_OR_RETURN(const SlicePlaces places,
                   FindSlice(start, stop, step, size));
  if (text != nullptr) {
    RETURN_IF_ERROR(budget.Build(places.count));
    Text part;
    part.reserve(places.count);
    for (size_t i = 0; i < places.count; ++i) part += (*text)[places[i]];
    return Value::String(std::move(part));
  }
  RETURN_IF_ERROR(budget.Steps(places.count));
  std::vector<Value> items;
  items.reserve(places.count);
  for (size_t i = 0; i < places.count; ++i) {
    items.push_back(list->items[places[i]]);
  }
  return MakeSequence(std::move(items), list->kind, budget);
}

}  // namespace reprise::jinja
