// RWKV-7: the layout of fla-org/flash-linear-attention, older files of it, and
// the original one of BlinkDL/RWKV-LM.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/delta_kernels.h"
#include "engine/model/adapters.h"
#include "engine/model/json_text.h"
#include "engine/model/rwkv7_description.h"

namespace reprise {
namespace {

constexpr char kMixLetters[] = "rwkvag";

// Of a head's output norm in the original code, for heads of 64.
constexpr float kOriginalOutputEpsilon = 64e-5F;

struct Rwkv7Config {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t layers = 0;
  int64_t head_dim = 0;
  int64_t ffn_width = 0;
  float norm_eps = 0;
  bool norm_first = true;
  bool norm_bias = true;
  bool tied = false;
};

// The tensors' names below, and where the layouts differ otherwise.
struct Rwkv7Layout {
  bool original = false;
  std::string_view embedding;
  std::string_view head;
  std::string_view final_norm;
  std::string_view layer;  // before the layer's number
  std::string_view first_norm;
  std::string_view att_norm;
  std::string_view ffn_norm;
  std::string_view att;
  std::string_view r;
  std::string_view k;
  std::string_view v;
  std::string_view o;
  std::string_view output_norm;
};

constexpr Rwkv7Layout kOriginalLayout = {true,
                                         "emb.weight",
                                         "head.weight",
                                         "ln_out",
                                         "blocks.",
                                         "ln0",
                                         "ln1",
                                         "ln2",
                                         "att.",
                                         "receptance.weight",
                                         "key.weight",
                                         "value.weight",
                                         "output.weight",
                                         "ln_x"};
constexpr Rwkv7Layout kFlaLayout = {false,
                                    "model.embeddings.weight",
                                    "lm_head.weight",
                                    "model.norm",
                                    "model.layers.",
                                    "pre_norm",
                                    "attn_norm",
                                    "ffn_norm",
                                    "attn.",
                                    "r_proj.weight",
                                    "k_proj.weight",
                                    "v_proj.weight",
                                    "o_proj.weight",
                                    "g_norm"};

class Namer {
 public:
  Namer(const Rwkv7Config& config, const Rwkv7Layout& layout,
        const Checkpoint& checkpoint)
      : c_(config), l_(layout), checkpoint_(checkpoint) {}

  ModelDescription Model() const;

 private:
  static std::string Join(std::string_view a, std::string_view b,
                          std::string_view c = "") {
    return absl::StrCat(ToAbsl(a), ToAbsl(b), ToAbsl(c));
  }
  const std::vector<int64_t>* ShapeOf(const std::string& name) const {
    const TensorInfo* tensor = checkpoint_.Find(name);
    return tensor == nullptr ? nullptr : &tensor->shape;
  }

  NormDescription LayerNorm(const std::string& name, bool bias) const;
  // `elements` numbers in whatever shape the file has them.
  ShapedRef Shaped(std::string name, int64_t elements) const;
  std::vector<ShapedRef> Mixes(const std::string& att) const;
  LoraDescription Lora(const std::string& att, char letter, bool bias) const;
  Rwkv7Description TimeMix(const std::string& att, bool first_layer) const;
  Rwkv7FfnDescription ChannelMix(const std::string& ffn) const;

  const Rwkv7Config& c_;
  const Rwkv7Layout& l_;
  const Checkpoint& checkpoint_;
};

NormDescription Namer::LayerNorm(const std::string& name, bool bias) const {
  NormDescription norm{.kind = NormKind::kLayer,
                       .eps = c_.norm_eps,
                       .weight = {name + ".weight", "hidden_size"},
                       .bias = {}};
  if (bias) norm.bias = {name + ".bias", "hidden_size"};
  return norm;
}

ShapedRef Namer::Shaped(std::string name, int64_t elements) const {
  ShapedRef ref{.tensor = {std::move(name), "hidden_size"},
                .shape = {elements}};
  const TensorInfo* tensor = checkpoint_.Find(ref.tensor.name);
  if (tensor != nullptr && tensor->elements == elements) {
    ref.shape = tensor->shape;
  }
  return ref;
}

std::vector<ShapedRef> Namer::Mixes(const std::string& att) const {
  // Older fla files have one tensor of six rows.
  if (checkpoint_.Find(att + "x_x") != nullptr) {
    return {Shaped(att + "x_x", kRwkv7Mixes * c_.hidden_size)};
  }
  std::vector<ShapedRef> mixes;
  for (int64_t i = 0; i < kRwkv7Mixes; ++i) {
    mixes.push_back(
        Shaped(absl::StrCat(att, "x_", std::string(1, kMixLetters[i])),
               c_.hidden_size));
  }
  return mixes;
}

// The rank is in no published config of the original layout, and may be null
// in fla's: the file knows it.
LoraDescription Namer::Lora(const std::string& att, char letter,
                            bool bias) const {
  const std::string fields = "hidden_size";
  const std::string base = att + letter;
  LoraDescription lora;
  size_t rank_dimension = 0;
  if (l_.original) {
    lora.down.weight = {base + "1", fields};
    lora.up.weight = {base + "2", fields};
    lora.down.transposed = lora.up.transposed = true;
    if (bias) lora.up.bias = {base + "0", fields};
    rank_dimension = 1;
  } else {
    lora.down.weight = {base + "_lora.lora.0.weight", fields};
    lora.up.weight = {base + "_lora.lora.2.weight", fields};
    if (bias) lora.up.bias = {base + "_lora.lora.2.bias", fields};
  }
  if (bias) {
    lora.up.bias_shape = Shaped(lora.up.bias.name, c_.hidden_size).shape;
  }
  const std::vector<int64_t>* shape = ShapeOf(lora.down.weight.name);
  const bool matrix = shape != nullptr && shape->size() == 2;
  lora.rank = matrix ? (*shape)[rank_dimension] : 1;
  // A tensor may have no rows; the check of its shape says so then.
  if (lora.rank < 1 || lora.rank > kMaxWidth) lora.rank = 1;
  return lora;
}

Rwkv7Description Namer::TimeMix(const std::string& att,
                                bool first_layer) const {
  const auto square = [&](std::string_view name) {
    LinearRef ref;
    ref.weight = {Join(att, name), "hidden_size"};
    return ref;
  };
  Rwkv7Description d;
  d.head_dim = c_.head_dim;
  d.heads = c_.hidden_size / c_.head_dim;
  d.mixes = Mixes(att);
  d.r = square(l_.r);
  d.k = square(l_.k);
  d.v = square(l_.v);
  d.o = square(l_.o);
  d.w = Lora(att, 'w', /*bias=*/true);
  d.a = Lora(att, 'a', /*bias=*/true);
  d.g = Lora(att, 'g', /*bias=*/false);
  if (!first_layer) d.first_value = Lora(att, 'v', /*bias=*/true);
  d.k_k = Shaped(att + "k_k", c_.hidden_size);
  d.k_a = Shaped(att + "k_a", c_.hidden_size);
  d.r_k = Shaped(att + "r_k", c_.hidden_size);
  // max(length, 1e-12), or sqrt(length^2 + 1e-6).
  d.key_epsilon = l_.original ? 1e-24F : 1e-6F;
  d.output_epsilon = l_.original
                         ? kOriginalOutputEpsilon
                         : static_cast<float>(c_.head_dim) * c_.norm_eps;
  d.output_weight = {Join(att, l_.output_norm, ".weight"), "hidden_size"};
  d.output_bias = {Join(att, l_.output_norm, ".bias"), "hidden_size"};
  return d;
}

Rwkv7FfnDescription Namer::ChannelMix(const std::string& ffn) const {
  const std::string fields = "hidden_size and intermediate_size";
  Rwkv7FfnDescription d;
  d.width = c_.ffn_width;
  d.mix = Shaped(ffn + "x_k", c_.hidden_size);
  d.key.weight = {ffn + "key.weight", fields};
  d.value.weight = {ffn + "value.weight", fields};
  return d;
}

ModelDescription Namer::Model() const {
  ModelDescription model;
  model.vocab_size = c_.vocab_size;
  model.d_model = c_.hidden_size;
  model.embedding = {std::string(l_.embedding), "vocab_size and hidden_size"};
  model.head.weight = model.embedding;
  if (!c_.tied) model.head.weight.name = l_.head;
  model.final_norm = LayerNorm(std::string(l_.final_norm), c_.norm_bias);
  for (int64_t i = 0; i < c_.layers; ++i) {
    const std::string layer = absl::StrCat(ToAbsl(l_.layer), i, ".");
    const auto norm = [&](std::string_view name) {
      return LayerNorm(Join(layer, name), c_.norm_bias);
    };
    if (i == 0 && c_.norm_first) model.embedding_norm = norm(l_.first_norm);
    model.layers.push_back(
        {{NormPlacement::kBefore, norm(l_.att_norm),
          TimeMix(Join(layer, l_.att), /*first_layer=*/i == 0)},
         {NormPlacement::kBefore, norm(l_.ffn_norm),
          ChannelMix(layer + "ffn.")}});
  }
  return model;
}

// What fla's model can do and this project does not.
void RefuseVariants(ConfigReader& config, int64_t hidden_size) {
  const std::string activation = config.String("hidden_act", "sqrelu");
  if (activation != "sqrelu") {
    config.Refuse("hidden_act", absl::StrCat("is ", Quoted(activation),
                                             "; supported is 'sqrelu'"));
  }
  if (config.Has("attn")) {
    config.Refuse("attn",
                  "asks for softmax attention in some layers, which is not "
                  "supported for RWKV-7");
  }
  for (const int64_t width : config.IntList("value_dim", 1, kMaxWidth)) {
    if (width != hidden_size) {
      config.Refuse("value_dim",
                    absl::StrCat("is ", width,
                                 "; supported is hidden_size = ", hidden_size));
    }
  }
}

Rwkv7Config ReadConfig(ConfigReader& config, const Rwkv7Layout& layout,
                       const Checkpoint& checkpoint) {
  Rwkv7Config c;
  c.vocab_size = config.Int("vocab_size", 1, kMaxVocab);
  c.hidden_size = config.Int("hidden_size", 1, kMaxWidth);
  c.layers = config.Int("num_hidden_layers", 1, kMaxLayers);
  const int64_t heads =
      config.Has("num_heads") ? config.Int("num_heads", 1, kMaxWidth) : 0;
  c.head_dim =
      config.Int("head_dim", 1, kMaxDeltaKeyDim,
                 heads > 0 ? std::max<int64_t>(1, c.hidden_size / heads) : 64);
  if (c.hidden_size % c.head_dim != 0) {
    config.Refuse("head_dim", absl::StrCat("is ", c.head_dim,
                                           ", which does not divide "
                                           "hidden_size = ",
                                           c.hidden_size));
  } else if (heads > 0 && heads != c.hidden_size / c.head_dim) {
    config.Refuse("num_heads",
                  absl::StrCat("is ", heads, ", but hidden_size / head_dim is ",
                               c.hidden_size / c.head_dim));
  }
  c.norm_eps = static_cast<float>(config.Number("norm_eps", 0, 1, 1e-5));
  c.norm_first = config.Bool("norm_first", /*fallback=*/true);
  c.norm_bias = config.Bool("norm_bias", /*fallback=*/true);
  c.tied = config.Bool("tie_word_embeddings", /*fallback=*/false);
  // Where the config has null, the file knows.
  const std::string key =
      absl::StrCat(ToAbsl(layout.layer), "0.ffn.key.weight");
  const TensorInfo* tensor = checkpoint.Find(key);
  std::optional<int64_t> width;
  if (tensor != nullptr && !tensor->shape.empty()) {
    width = std::clamp<int64_t>(tensor->shape[0], 1, kMaxWidth);
  }
  c.ffn_width = config.Int("intermediate_size", 1, kMaxWidth, width);
  RefuseVariants(config, c.hidden_size);
  return c;
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeRwkv7(ConfigReader& config,
                                               const Checkpoint& checkpoint) {
  const bool original = checkpoint.Find(kOriginalLayout.embedding) != nullptr;
  const Rwkv7Layout& layout = original ? kOriginalLayout : kFlaLayout;
  const Rwkv7Config c = ReadConfig(config, layout, checkpoint);
  RETURN_IF_ERROR(config.status());
  return Namer(c, layout, checkpoint).Model();
}

}  // namespace reprise
