// The description of any mixer: what adapters hand to the mixers of
// engine/mixer/registry.cc, which is the only list of them.
#ifndef ENGINE_MODEL_MIXER_DESCRIPTION_H_
#define ENGINE_MODEL_MIXER_DESCRIPTION_H_

#include <any>
#include <string_view>
#include <utility>

#include "engine/base/log.h"

namespace reprise {

// Holds a struct of plain data, of any type that has a string kKind; the kind
// is the mixer's line in the table. A value: copies are deep.
class MixerDescription {
 public:
  MixerDescription() = default;  // describes nothing, kind ""
  template <class Description>
  requires requires { Description::kKind; }
  MixerDescription(Description description)  // implicit, as of a variant
      : kind_(Description::kKind), description_(std::move(description)) {}

  std::string_view kind() const { return kind_; }

  // Null if it holds another type.
  template <class Description>
  const Description* AsIf() const {
    return std::any_cast<Description>(&description_);
  }
  // CHECKs that it holds this type.
  template <class Description>
  const Description& As() const {
    const Description* description = AsIf<Description>();
    CHECK(description != nullptr);
    return *description;
  }

 private:
  std::string_view kind_;  // a literal
  std::any description_;
};

}  // namespace reprise

#endif  // ENGINE_MODEL_MIXER_DESCRIPTION_H_
