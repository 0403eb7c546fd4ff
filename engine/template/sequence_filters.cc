// Filters of sequences.
#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/model/json_text.h"
#include "engine/template/builtin.h"
#include "engine/template/format_value.h"
#include "engine/template/operators.h"

namespace reprise::jinja {
namespace {

using Result = absl::StatusOr<Value>;

// ---- Attributes of items ----------------------------------------------------

// The item's attribute by a path as Jinja writes it: "function.name", "0.role".
// `otherwise`, unless it is None, stands for what is missing on the way.
Result Attribute(Context& context, Value item, const Value& path,
                 const Value& otherwise = Value()) {
  const auto or_otherwise = [&otherwise](Value value) {
    return value.undefined() && !otherwise.none() ? otherwise : value;
  };
  if (path.text() == nullptr) {
    ASSIGN_OR_RETURN(item, GetItem(item, path, context.budget));
    return or_otherwise(std::move(item));
  }
  RETURN_IF_ERROR(context.budget.Build(path.text()->size()));
  for (const TextView part :
       SplitAt(*path.text(), U".", /*limit=*/kMaxValueDepth)) {
    const std::string name = ToUtf8(part);
    int64_t index = 0;
    const auto parsed =
        std::from_chars(name.data(), name.data() + name.size(), index);
    const bool number = parsed.ec == std::errc() &&
                        parsed.ptr == name.data() + name.size() && index >= 0;
    const Value key = number ? Value::Int(index) : Value::String(part);
    ASSIGN_OR_RETURN(item, GetItem(item, key, context.budget));
    item = or_otherwise(std::move(item));
  }
  return item;
}

// What an item is compared by: its attribute, if there is a path, in small
// letters unless case matters.
Result KeyOf(Context& context, const Value& item, const Value* path,
             bool case_sensitive) {
  Value key = item;
  if (path != nullptr && !path->none()) {
    ASSIGN_OR_RETURN(key, Attribute(context, item, *path));
  }
  const Text* text = key.text();
  if (text == nullptr || case_sensitive) return key;
  RETURN_IF_ERROR(context.budget.Build(text->size()));
  return Value::String(Lower(*text));
}

struct Keyed {
  Value key;
  Value item;
};

absl::StatusOr<std::vector<Keyed>> WithKeys(Context& context,
                                            std::vector<Value> items,
                                            const Value* path,
                                            bool case_sensitive) {
  std::vector<Keyed> keyed;
  for (Value& item : items) {
    ASSIGN_OR_RETURN(Value key, KeyOf(context, item, path, case_sensitive));
    keyed.push_back({std::move(key), std::move(item)});
  }
  return keyed;
}

absl::StatusOr<std::vector<Value>> Sorted(Context& context,
                                          std::vector<Keyed> keyed,
                                          bool reverse) {
  absl::Status status;
  const auto before = [&](const Keyed& a, const Keyed& b) {
    if (!status.ok()) return false;
    const absl::StatusOr<int> order = reverse
                                          ? Order(b.key, a.key, context.budget)
                                          : Order(a.key, b.key, context.budget);
    if (!order.ok()) status = order.status();
    return order.ok() && *order < 0;
  };
  std::stable_sort(keyed.begin(), keyed.end(), before);
  RETURN_IF_ERROR(status);
  std::vector<Value> items;
  for (Keyed& one : keyed) items.push_back(std::move(one.item));
  return items;
}

// ---- Filters ----------------------------------------------------------------

Result First(Context& context, const Value& self, const BoundArguments&) {
  ASSIGN_OR_RETURN(const std::vector<Value> items,
                   Iterate(self, context.budget));
  if (items.empty()) return Value::Missing("there is no first item");
  return items.front();
}

Result Last(Context& context, const Value& self, const BoundArguments&) {
  RETURN_IF_ERROR(Length(self).status());
  ASSIGN_OR_RETURN(const std::vector<Value> items,
                   Iterate(self, context.budget));
  if (items.empty()) return Value::Missing("there is no last item");
  return items.back();
}

Result LengthOf(Context&, const Value& self, const BoundArguments&) {
  ASSIGN_OR_RETURN(const int64_t length, Length(self));
  return Value::Int(length);
}

Result Join(Context& context, const Value& self,
            const BoundArguments& arguments) {
  ASSIGN_OR_RETURN(const std::vector<Value> items,
                   Iterate(self, context.budget));
  Text separator;
  if (arguments[0] != nullptr) {
    ASSIGN_OR_RETURN(separator, ToText(*arguments[0], context.budget));
  }
  Text joined;
  for (size_t i = 0; i < items.size(); ++i) {
    Value item = items[i];
    if (arguments[1] != nullptr && !arguments[1]->none()) {
      ASSIGN_OR_RETURN(item, Attribute(context, item, *arguments[1]));
    }
    ASSIGN_OR_RETURN(const Text text, ToText(item, context.budget));
    RETURN_IF_ERROR(context.budget.Build(text.size() + separator.size()));
    if (i > 0) joined += separator;
    joined += text;
  }
  return Value::String(std::move(joined));
}

Result ListOfItems(Context& context, const Value& self, const BoundArguments&) {
  ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(self, context.budget));
  return MakeSequence(std::move(items), SequenceKind::kList, context.budget);
}

Result Reverse(Context& context, const Value& self, const BoundArguments&) {
  if (const Text* text = self.text()) {
    RETURN_IF_ERROR(context.budget.Build(text->size()));
    return Value::String(Text(text->rbegin(), text->rend()));
  }
  const Sequence* list = self.sequence();
  const bool generator =
      list != nullptr && list->kind == SequenceKind::kGenerator;
  ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(self, context.budget));
  std::reverse(items.begin(), items.end());
  // As in Jinja: a list of what can only be gone through once, and what can
  // only be gone through once of a list.
  return MakeSequence(
      std::move(items),
      generator ? SequenceKind::kList : SequenceKind::kGenerator,
      context.budget);
}

Result Sort(Context& context, const Value& self,
            const BoundArguments& arguments) {
  ASSIGN_OR_RETURN(const bool reverse, arguments.Bool(0, false));
  ASSIGN_OR_RETURN(const bool case_sensitive, arguments.Bool(1, false));
  if (arguments[2] != nullptr && arguments[2]->text() != nullptr &&
      arguments[2]->text()->find(U',') != Text::npos) {
    return absl::UnimplementedError(
        "sorting by several attributes is not supported");
  }
  ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(self, context.budget));
  ASSIGN_OR_RETURN(
      std::vector<Keyed> keyed,
      WithKeys(context, std::move(items), arguments[2], case_sensitive));
  ASSIGN_OR_RETURN(items, Sorted(context, std::move(keyed), reverse));
  return MakeSequence(std::move(items), SequenceKind::kList, context.budget);
}

Result DictSort(Context& context, const Value& self,
                const BoundArguments& arguments) {
  const Dict* dict = self.dict();
  if (dict == nullptr) {
    RETURN_IF_ERROR(CheckDefined(self));
    return absl::InvalidArgumentError("dictsort() needs a dict");
  }
  ASSIGN_OR_RETURN(const bool case_sensitive, arguments.Bool(0, false));
  ASSIGN_OR_RETURN(const TextView by, arguments.String(1, U"key"));
  ASSIGN_OR_RETURN(const bool reverse, arguments.Bool(2, false));
  if (!Equal(by, U"key") && !Equal(by, U"value")) {
    return absl::InvalidArgumentError("dictsort() sorts by 'key' or 'value'");
  }
  std::vector<Value> pairs;
  for (const auto& [key, value] : dict->entries) {
    ASSIGN_OR_RETURN(
        Value pair,
        MakeSequence({key, value}, SequenceKind::kTuple, context.budget));
    pairs.push_back(std::move(pair));
  }
  const Value place = Value::Int(Equal(by, U"key") ? 0 : 1);
  ASSIGN_OR_RETURN(std::vector<Keyed> keyed,
                   WithKeys(context, std::move(pairs), &place, case_sensitive));
  ASSIGN_OR_RETURN(pairs, Sorted(context, std::move(keyed), reverse));
  return MakeSequence(std::move(pairs), SequenceKind::kList, context.budget);
}

Result Unique(Context& context, const Value& self,
              const BoundArguments& arguments) {
  ASSIGN_OR_RETURN(const bool case_sensitive, arguments.Bool(0, false));
  ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(self, context.budget));
  ASSIGN_OR_RETURN(
      std::vector<Keyed> keyed,
      WithKeys(context, std::move(items), arguments[1], case_sensitive));
  std::vector<Value> seen;
  std::vector<Value> unique;
  for (Keyed& one : keyed) {
    bool known = false;
    for (size_t i = 0; i < seen.size() && !known; ++i) {
      ASSIGN_OR_RETURN(known, Equals(seen[i], one.key, context.budget));
    }
    if (known) continue;
    seen.push_back(std::move(one.key));
    unique.push_back(std::move(one.item));
  }
  return MakeSequence(std::move(unique), SequenceKind::kGenerator,
                      context.budget);
}

// The least or greatest item.
template <int kSign>
Result Extreme(Context& context, const Value& self,
               const BoundArguments& arguments) {
  ASSIGN_OR_RETURN(const bool case_sensitive, arguments.Bool(0, false));
  ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(self, context.budget));
  ASSIGN_OR_RETURN(
      const std::vector<Keyed> keyed,
      WithKeys(context, std::move(items), arguments[1], case_sensitive));
  if (keyed.empty()) return Value::Missing("there is no item to choose from");
  const Keyed* best = &keyed.front();
  for (const Keyed& one : keyed) {
    ASSIGN_OR_RETURN(const int order,
                     Order(one.key, best->key, context.budget));
    if (order * kSign > 0) best = &one;
  }
  return best->item;
}

Result Sum(Context& context, const Value& self,
           const BoundArguments& arguments) {
  ASSIGN_OR_RETURN(const std::vector<Value> items,
                   Iterate(self, context.budget));
  Value sum = arguments[1] == nullptr ? Value::Int(0) : *arguments[1];
  for (Value item : items) {
    if (arguments[0] != nullptr && !arguments[0]->none()) {
      ASSIGN_OR_RETURN(item, Attribute(context, item, *arguments[0]));
    }
    ASSIGN_OR_RETURN(sum,
                     Apply(BinaryOperator::kAdd, sum, item, context.budget));
  }
  return sum;
}

// ---- Filters that apply others ----------------------------------------------

// The filter's or test's name at `place`, and the arguments after it.
absl::StatusOr<std::string> TakeName(Arguments& arguments, size_t place) {
  const Text* name = arguments.positional[place].text();
  if (name == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("a ", ToAbsl(arguments.positional[place].type()),
                     " is no name of a filter or test"));
  }
  std::string utf8 = ToUtf8(*name);
  arguments.positional.erase(
      arguments.positional.begin(),
      arguments.positional.begin() + static_cast<ptrdiff_t>(place) + 1);
  return utf8;
}

// map(attribute=...) with a default for items that lack it.
Result MapAttribute(Context& context, const std::vector<Value>& items,
                    const Arguments& arguments) {
  const Value* path = nullptr;
  Value otherwise;
  for (const auto& [name, value] : arguments.named) {
    if (name == "attribute") {
      path = &value;
    } else if (name == "default") {
      otherwise = value;
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("map() has no argument ", Quoted(name)));
    }
  }
  if (path == nullptr) {
    return absl::InvalidArgumentError("map() needs a filter or an attribute");
  }
  std::vector<Value> mapped;
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(Value value, Attribute(context, item, *path, otherwise));
    mapped.push_back(std::move(value));
  }
  return MakeSequence(std::move(mapped), SequenceKind::kGenerator,
                      context.budget);
}

// Of what is empty or none nothing is made, whatever the arguments are.
Result Nothing(Context& context) {
  return MakeSequence({}, SequenceKind::kGenerator, context.budget);
}

Result Map(Context& context, const Value& self, const Arguments& given) {
  if (!self.truthy()) return Nothing(context);
  ASSIGN_OR_RETURN(const std::vector<Value> items,
                   Iterate(self, context.budget));
  if (given.positional.empty()) return MapAttribute(context, items, given);
  Arguments arguments = given;
  ASSIGN_OR_RETURN(const std::string name, TakeName(arguments, 0));
  const Builtin* filter = FindFilter(name);
  if (filter == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("the filter ", Quoted(name), " is not supported"));
  }
  std::vector<Value> mapped;
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(Value value, Invoke(*filter, context, item, arguments));
    mapped.push_back(std::move(value));
  }
  return MakeSequence(std::move(mapped), SequenceKind::kGenerator,
                      context.budget);
}

// select, reject (by the item) and selectattr, rejectattr (by an attribute,
// whose path is the first argument).
template <bool kKeep, bool kByAttribute>
Result Choose(Context& context, const Value& self, const Arguments& given) {
  constexpr size_t kPlace = kByAttribute ? 1 : 0;
  if (!self.truthy()) return Nothing(context);
  if (given.positional.size() < kPlace) {
    return absl::InvalidArgumentError(
        "selectattr() and rejectattr() need an attribute");
  }
  ASSIGN_OR_RETURN(const std::vector<Value> items,
                   Iterate(self, context.budget));
  Arguments arguments = given;
  const Builtin* test = nullptr;
  if (given.positional.size() > kPlace) {
    ASSIGN_OR_RETURN(const std::string name, TakeName(arguments, kPlace));
    test = FindTest(name);
    if (test == nullptr) {
      return absl::UnimplementedError(
          absl::StrCat("the test ", Quoted(name), " is not supported"));
    }
  }
  std::vector<Value> chosen;
  for (const Value& item : items) {
    Value subject = item;
    if (kByAttribute) {
      ASSIGN_OR_RETURN(subject, Attribute(context, item, given.positional[0]));
    }
    Value passes = Value::Bool(subject.truthy());
    if (test != nullptr) {
      ASSIGN_OR_RETURN(passes, Invoke(*test, context, subject, arguments));
    }
    if (passes.truthy() == kKeep) chosen.push_back(item);
  }
  return MakeSequence(std::move(chosen), SequenceKind::kGenerator,
                      context.budget);
}

}  // namespace

std::span<const Builtin> SequenceFilters() {
  static const std::vector<Builtin>& table = *new std::vector<Builtin>{
      {"count", LengthOf},
      {"dictsort", DictSort, {"case_sensitive", "by", "reverse"}},
      {"first", First},
      {"join", Join, {"d", "attribute"}},
      {"last", Last},
      {"length", LengthOf},
      {"list", ListOfItems},
      {"map", nullptr, {}, 0, Map},
      {"max", Extreme<1>, {"case_sensitive", "attribute"}},
      {"min", Extreme<-1>, {"case_sensitive", "attribute"}},
      {"reject", nullptr, {}, 0, Choose<false, false>},
      {"rejectattr", nullptr, {}, 0, Choose<false, true>},
      {"reverse", Reverse},
      {"select", nullptr, {}, 0, Choose<true, false>},
      {"selectattr", nullptr, {}, 0, Choose<true, true>},
      {"sort", Sort, {"reverse", "case_sensitive", "attribute"}},
      {"sum", Sum, {"attribute", "start"}},
      {"unique", Unique, {"case_sensitive", "attribute"}},
  };
  return table;
}

}  // namespace reprise::jinja
