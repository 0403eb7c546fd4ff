#include "engine/template/value.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"

namespace reprise::jinja {
namespace {

absl::Status TooDeep() {
  return absl::InvalidArgumentError(absl::StrCat(
      "lists and dicts are nested deeper than ", kMaxValueDepth, " levels"));
}

// bool is a kind of int.
std::optional<int64_t> AsInt(const Value& value) {
  if (const bool* b = value.get<bool>()) return *b ? 1 : 0;
  if (const int64_t* i = value.get<int64_t>()) return *i;
  return std::nullopt;
}

std::optional<double> AsDouble(const Value& value) {
  if (const double* d = value.get<double>()) return *d;
  if (const std::optional<int64_t> i = AsInt(value)) {
    return static_cast<double>(*i);
  }
  return std::nullopt;
}

// Empty unless both are numbers. NaN is ordered like nothing.
std::optional<std::partial_ordering> CompareNumbers(const Value& a,
                                                    const Value& b) {
  const std::optional<int64_t> i = AsInt(a);
  const std::optional<int64_t> j = AsInt(b);
  if (i.has_value() && j.has_value()) return *i <=> *j;
  const std::optional<double> x = AsDouble(a);
  const std::optional<double> y = AsDouble(b);
  if (x.has_value() && y.has_value()) return *x <=> *y;
  return std::nullopt;
}

absl::StatusOr<bool> EqualSequences(const Sequence& a, const Sequence& b,
                                    Budget& budget) {
  if (a.kind == SequenceKind::kGenerator || a.kind == SequenceKind::kView) {
    return &a == &b;
  }
  if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    ASSIGN_OR_RETURN(const bool equal, Equals(a.items[i], b.items[i], budget));
    if (!equal) return false;
  }
  return true;
}

// The entry with that key; the number of entries if there is none.
absl::StatusOr<size_t> FindKey(const Dict& dict, const Value& key,
                               Budget& budget) {
  for (size_t i = 0; i < dict.entries.size(); ++i) {
    ASSIGN_OR_RETURN(const bool equal,
                     Equals(dict.entries[i].first, key, budget));
    if (equal) return i;
  }
  return dict.entries.size();
}

absl::StatusOr<bool> EqualDicts(const Dict& a, const Dict& b, Budget& budget) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    ASSIGN_OR_RETURN(const size_t other, FindKey(b, key, budget));
    if (other == b.entries.size()) return false;
    ASSIGN_OR_RETURN(const bool equal,
                     Equals(value, b.entries[other].second, budget));
    if (!equal) return false;
  }
  return true;
}

}  // namespace

Value Value::Missing(std::string reason) {
  return Value(
      Undefined{std::make_shared<const std::string>(std::move(reason))});
}

const Text* Value::text() const {
  const auto* ref = get<TextRef>();
  return ref == nullptr ? nullptr : ref->get();
}

const Sequence* Value::sequence() const {
  const auto* ref = get<SequenceRef>();
  return ref == nullptr ? nullptr : ref->get();
}

const Dict* Value::dict() const {
  const auto* ref = get<DictRef>();
  return ref == nullptr ? nullptr : ref->get();
}

int Value::depth() const {
  if (const Sequence* list = sequence()) return list->depth;
  if (const Dict* map = dict()) return map->depth;
  if (const auto* method = get<MethodRef>()) return (*method)->self.depth();
  return 0;
}

std::string_view Value::type() const {
  if (const Sequence* list = sequence()) {
    constexpr std::array<std::string_view, 5> kNames = {
        "list", "tuple", "range", "dict view", "generator"};
    return kNames[static_cast<size_t>(list->kind)];
  }
  // In the order of Any.
  constexpr std::array<std::string_view, 13> kNames = {
      "None", "undefined", "bool", "int",   "float",    "str",   "list",
      "dict", "namespace", "loop", "macro", "function", "method"};
  return kNames[any_.index()];
}

bool Value::truthy() const {
  if (undefined() || none()) return false;
  if (const std::optional<double> number = AsDouble(*this)) return *number != 0;
  if (const Text* string = text()) return !string->empty();
  if (const Dict* map = dict()) return !map->entries.empty();
  const Sequence* list = sequence();
  return list == nullptr || list->kind == SequenceKind::kGenerator ||
         !list->items.empty();
}

const Value* Dict::Find(TextView key) const {
  for (const auto& [name, value] : entries) {
    const Text* text = name.text();
    if (text != nullptr && Equal(*text, key)) return &value;
  }
  return nullptr;
}

absl::StatusOr<Value> MakeSequence(std::vector<Value> items, SequenceKind kind,
                                   Budget& budget) {
  RETURN_IF_ERROR(budget.BuildElements(items.size()));
  auto sequence = std::make_shared<Sequence>();
  for (const Value& item : items) {
    sequence->depth = std::max(sequence->depth, item.depth() + 1);
  }
  if (sequence->depth > kMaxValueDepth) return TooDeep();
  sequence->kind = kind;
  sequence->items = std::move(items);
  return Value(Value::SequenceRef(std::move(sequence)));
}

absl::StatusOr<Value> MakeDict(std::vector<std::pair<Value, Value>> entries,
                               Budget& budget) {
  RETURN_IF_ERROR(budget.BuildElements(entries.size()));
  auto dict = std::make_shared<Dict>();
  for (auto& [key, value] : entries) {
    dict->depth = std::max(dict->depth, value.depth() + 1);
    if (key.sequence() != nullptr || key.dict() != nullptr || key.undefined()) {
      return absl::InvalidArgumentError(
          absl::StrCat("a ", ToAbsl(key.type()), " cannot be a key of a dict"));
    }
    // Of two equal keys the first one's place and the last one's value count.
    ASSIGN_OR_RETURN(const size_t same, FindKey(*dict, key, budget));
    if (same == dict->entries.size()) {
      dict->entries.emplace_back(std::move(key), std::move(value));
    } else {
      dict->entries[same].second = std::move(value);
    }
  }
  if (dict->depth > kMaxValueDepth) return TooDeep();
  return Value(Value::DictRef(std::move(dict)));
}

absl::StatusOr<std::vector<Value>> Iterate(const Value& value, Budget& budget) {
  if (value.undefined()) return std::vector<Value>();
  if (const Sequence* list = value.sequence()) {
    RETURN_IF_ERROR(budget.Steps(list->items.size()));
    if (list->used_up) return std::vector<Value>();
    list->used_up = list->kind == SequenceKind::kGenerator;
    return list->items;
  }
  std::vector<Value> items;
  if (const Dict* map = value.dict()) {
    RETURN_IF_ERROR(budget.Steps(map->entries.size()));
    for (const auto& [key, unused] : map->entries) items.push_back(key);
    return items;
  }
  if (const Text* text = value.text()) {
    RETURN_IF_ERROR(budget.BuildElements(text->size()));
    for (const char32_t c : *text) items.push_back(Value::String(Text(1, c)));
    return items;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a ", ToAbsl(value.type()), " is nothing to loop over"));
}

absl::StatusOr<bool> Equals(const Value& a, const Value& b, Budget& budget) {
  RETURN_IF_ERROR(budget.Steps(1));
  if (const auto numbers = CompareNumbers(a, b)) return *numbers == 0;
  if (a.any().index() != b.any().index()) return false;
  if (a.none() || a.undefined()) return true;
  if (const Text* text = a.text()) {
    RETURN_IF_ERROR(budget.Scan(text->size()));
    return Equal(*text, *b.text());
  }
  if (const Sequence* list = a.sequence()) {
    return EqualSequences(*list, *b.sequence(), budget);
  }
  if (const Dict* map = a.dict()) return EqualDicts(*map, *b.dict(), budget);
  if (auto* space = a.get<Namespace*>()) return *space == *b.get<Namespace*>();
  return false;
}

absl::StatusOr<int> Order(const Value& a, const Value& b, Budget& budget) {
  RETURN_IF_ERROR(budget.Steps(1));
  if (const auto numbers = CompareNumbers(a, b)) {
    if (*numbers == std::partial_ordering::unordered) {
      return absl::InvalidArgumentError("NaN has no order");
    }
    return *numbers < 0 ? -1 : *numbers > 0 ? 1 : 0;
  }
  if (a.undefined() || b.undefined()) {
    return absl::InvalidArgumentError(
        *(a.undefined() ? a : b).get<Undefined>()->reason);
  }
  if (a.text() != nullptr && b.text() != nullptr) {
    RETURN_IF_ERROR(budget.Scan(std::min(a.text()->size(), b.text()->size())));
    return Compare(*a.text(), *b.text());
  }
  const Sequence* left = a.sequence();
  const Sequence* right = b.sequence();
  const auto ordered = [](const Sequence* list) {
    return list != nullptr && (list->kind == SequenceKind::kList ||
                               list->kind == SequenceKind::kTuple);
  };
  if (!ordered(left) || !ordered(right) || left->kind != right->kind) {
    return absl::InvalidArgumentError(absl::StrCat("a ", ToAbsl(a.type()),
                                                   " and a ", ToAbsl(b.type()),
                                                   " cannot be put in order"));
  }
  const size_t common = std::min(left->items.size(), right->items.size());
  for (size_t i = 0; i < common; ++i) {
    ASSIGN_OR_RETURN(const bool equal,
                     Equals(left->items[i], right->items[i], budget));
    if (!equal) return Order(left->items[i], right->items[i], budget);
  }
  const auto sizes = left->items.size() <=> right->items.size();
  return sizes < 0 ? -1 : sizes > 0 ? 1 : 0;
}

absl::StatusOr<int64_t> Length(const Value& value) {
  if (value.undefined()) return 0;
  if (const Text* text = value.text()) {
    return static_cast<int64_t>(text->size());
  }
  if (const Dict* map = value.dict()) {
    return static_cast<int64_t>(map->entries.size());
  }
  const Sequence* list = value.sequence();
  if (list != nullptr && list->kind != SequenceKind::kGenerator) {
    return static_cast<int64_t>(list->items.size());
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a ", ToAbsl(value.type()), " has no length"));
}

}  // namespace reprise::jinja
