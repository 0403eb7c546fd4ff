// Names inside a template: blocks that have names of their own, inside others.
#ifndef ENGINE_TEMPLATE_SCOPE_H_
#define ENGINE_TEMPLATE_SCOPE_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/template/value.h"

namespace reprise::jinja {

// The names of one block. Those of the blocks around it can be read, and are
// covered, not changed, by an assignment here.
class Scope {
 public:
  // `outer`, null for the outermost, must outlive the scope.
  explicit Scope(const Scope* outer) : outer_(outer) {}

  // How many names Find may go through.
  size_t size() const {
    size_t size = 0;
    for (const Scope* scope = this; scope != nullptr; scope = scope->outer_) {
      size += scope->names_.size();
    }
    return size;
  }

  // Null if the name is known nowhere.
  const Value* Find(std::string_view name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->outer_) {
      for (const auto& [known, value] : scope->names_) {
        if (known == name) return &value;
      }
    }
    return nullptr;
  }

  void Set(std::string_view name, Value value) {
    for (auto& [known, old] : names_) {
      if (known != name) continue;
      old = std::move(value);
      return;
    }
    names_.emplace_back(std::string(name), std::move(value));
  }

 private:
  const Scope* const outer_;
  std::vector<std::pair<std::string, Value>> names_;
};

}  // namespace reprise::jinja

#endif  // ENGINE_TEMPLATE_SCOPE_H_
