#include "server/inference_service_request.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/sampler.h"
#include "server/client_states.h"
#include "server/inference_service_messages.h"

namespace reprise {
namespace {

template <typename... Parts>
absl::Status Invalid(std::string_view field, const Parts&... parts) {
  return absl::InvalidArgumentError(
      absl::StrCat(ToAbsl(field), ": ", parts...));
}

uint64_t DrawSeed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

absl::Status ApplyRequestId(const std::string& id, TurnRequest& turn) {
  if (id.size() > kMaxRequestIdBytes) {
    return Invalid("request_id", id.size(), " bytes are more than ",
                   kMaxRequestIdBytes);
  }
  turn.request_id = id;
  return absl::OkStatus();
}

// Two requests that are alike have the same; the bytes of a message depend on
// the order of its map, unless that is asked for. FNV-1a, 64 bits.
uint64_t Fingerprint(const google::protobuf::Message& request) {
  std::string bytes = request.GetTypeName();
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    request.SerializeToCodedStream(&coded);
  }
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) {
    hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  }
  return hash;
}

// For a turn that may be committed to a session: what is not, leaves nothing
// that could be repeated. Which revision is expected is no part of what is
// asked for: a client may learn it from the first attempt, for the second.
template <typename Request>
void ApplyIdentity(const Request& request, TurnRequest& turn) {
  if (turn.request_id.empty() || !turn.session.has_value() || !turn.commit) {
    return;
  }
  Request asked = request;
  asked.clear_expected_revision();
  turn.acquire.request = {turn.request_id, Fingerprint(asked)};
}

absl::StatusOr<SamplingParams> ToSampling(const v1::SamplingOptions& options,
                                          int64_t vocab_size) {
  SamplingParams params;
  if (options.has_temperature()) params.temperature = options.temperature();
  if (options.has_top_k()) {
    // The sampler's own zero means what here is an unset field.
    if (options.top_k() < 1 || options.top_k() > vocab_size) {
      return Invalid("sampling.top_k", options.top_k(), " is not in [1, ",
                     vocab_size, "]; leave it unset to turn it off");
    }
    params.top_k = static_cast<int32_t>(options.top_k());
  }
  if (options.has_top_p()) params.top_p = options.top_p();
  if (options.has_min_p()) params.min_p = options.min_p();
  if (options.has_typical_p()) params.typical_p = options.typical_p();
  if (options.has_repetition_penalty()) {
    params.repetition_penalty = options.repetition_penalty();
  }
  if (options.has_presence_penalty()) {
    params.presence_penalty = options.presence_penalty();
  }
  if (options.has_frequency_penalty()) {
    params.frequency_penalty = options.frequency_penalty();
  }
  if (options.has_penalty_decay()) {
    params.penalty_decay = options.penalty_decay();
  }
  if (options.has_penalty_last_n()) {
    if (options.penalty_last_n() > SamplingParams::kMaxWindow) {
      return Invalid("sampling.penalty_last_n", options.penalty_last_n(),
                     " is not in [0, ", SamplingParams::kMaxWindow, "]");
    }
    params.penalty_last_n = static_cast<int32_t>(options.penalty_last_n());
  }
  params.logit_bias.assign(options.logit_bias().begin(),
                           options.logit_bias().end());
  std::sort(params.logit_bias.begin(), params.logit_bias.end());
  params.seed = options.has_seed() ? options.seed() : DrawSeed();
  RETURN_IF_ERROR(ValidateSamplingParams(params, vocab_size));
  return params;
}

absl::Status ApplyStopStrings(const v1::StoppingOptions& options,
                              TurnRequest& turn) {
  if (options.stop_size() > kMaxStopStrings) {
    return Invalid("stopping.stop", options.stop_size(),
                   " strings are more than ", kMaxStopStrings);
  }
  for (int i = 0; i < options.stop_size(); ++i) {
    const std::string& stop = options.stop(i);
    if (stop.empty() || stop.size() > kMaxStopBytes) {
      return Invalid(absl::StrCat("stopping.stop[", i, "]"), stop.size(),
                     " bytes are not in [1, ", kMaxStopBytes, "]");
    }
    turn.stop.push_back(stop);
  }
  return absl::OkStatus();
}

absl::Status ApplyStopping(const v1::StoppingOptions& options,
                           const ServiceContext& context, TurnRequest& turn) {
  const int64_t limit = context.options.max_new_tokens;
  turn.max_new_tokens = options.has_max_new_tokens()
                            ? options.max_new_tokens()
                            : std::min<int64_t>(kDefaultNewTokens, limit);
  if (turn.max_new_tokens < 1 || turn.max_new_tokens > limit) {
    return Invalid("stopping.max_new_tokens", turn.max_new_tokens,
                   " is not in [1, ", limit, "]");
  }
  turn.min_new_tokens = options.min_new_tokens();
  if (turn.min_new_tokens > turn.max_new_tokens) {
    return Invalid("stopping.min_new_tokens", turn.min_new_tokens,
                   " is more than max_new_tokens, ", turn.max_new_tokens);
  }
  RETURN_IF_ERROR(ApplyStopStrings(options, turn));
  if (options.stop_token_ids_size() > kMaxStopTokens) {
    return Invalid("stopping.stop_token_ids", options.stop_token_ids_size(),
                   " ids are more than ", kMaxStopTokens);
  }
  turn.stop_tokens.assign(options.stop_token_ids().begin(),
                          options.stop_token_ids().end());
  RETURN_IF_ERROR(ValidateTokenIds(turn.stop_tokens, "stopping.stop_token_ids",
                                   context.model.vocab_size));
  if (!options.ignore_eos()) turn.eos_tokens = context.model.eos_tokens;
  turn.include_stop = options.include_stop();
  if (options.has_time_limit_ms()) {
    if (options.time_limit_ms() == 0) {
      return Invalid("stopping.time_limit_ms", "0 is not at least 1");
    }
    turn.time_limit_ms = options.time_limit_ms();
  }
  return absl::OkStatus();
}

absl::Status ApplyLogprobs(uint32_t logprobs, std::string_view field,
                           TurnRequest& turn) {
  if (logprobs > kMaxLogprobs) {
    return Invalid(field, logprobs, " is not in [0, ", kMaxLogprobs, "]");
  }
  turn.logprobs = static_cast<int32_t>(logprobs);
  return absl::OkStatus();
}

absl::Status ApplyOutput(const v1::OutputOptions& options, TurnRequest& turn) {
  turn.want_text = !options.has_text() || options.text();
  turn.want_token_ids = options.token_ids();
  if (options.prompt_logprobs()) {
    turn.prompt_logprobs = PromptLogprobs::kWithStarted;
  }
  if (options.has_snapshot()) {
    ASSIGN_OR_RETURN(turn.seal,
                     ToSealOptions(options.snapshot(), "output.snapshot"));
  }
  if (!options.has_logprobs()) return absl::OkStatus();
  return ApplyLogprobs(options.logprobs(), "output.logprobs", turn);
}

// The field that the prompt of a request comes from.
template <typename Request>
std::string_view InputName(const Request& request) {
  return request.has_token_ids() ? "token_ids.ids" : "text";
}

// The prompt, from text or ids; what neither of them is set to is empty.
template <typename Request>
absl::StatusOr<std::vector<int32_t>> ToPrompt(const Request& request,
                                              const ServiceContext& context) {
  std::vector<int32_t> prompt;
  const std::string_view field = InputName(request);
  if (request.has_text()) {
    ASSIGN_OR_RETURN(
        prompt,
        EncodeText(request.text(), request.allow_special_tokens(), context));
  } else if (request.has_token_ids()) {
    const auto& ids = request.token_ids().ids();
    prompt.assign(ids.begin(), ids.end());
    RETURN_IF_ERROR(ValidateTokenIds(prompt, field, context.model.vocab_size));
  }
  const int64_t tokens = static_cast<int64_t>(prompt.size());
  if (tokens > context.options.max_prompt_tokens) {
    context.metrics.CountRejected(RejectReason::kTooLarge);
    return Invalid(field, tokens, " tokens are more than the server takes, ",
                   context.options.max_prompt_tokens);
  }
  return prompt;
}

absl::Status CheckPromptLogprobs(const TurnRequest& turn) {
  if (turn.prompt_logprobs == PromptLogprobs::kNone) return absl::OkStatus();
  const int64_t tokens = PromptTokens(turn);
  const int64_t alternatives = turn.logprobs.value_or(0);
  const int64_t entries = tokens * (1 + alternatives);
  if (entries <= kMaxPromptLogprobs) return absl::OkStatus();
  return Invalid("output.prompt_logprobs", entries, " entries, for ", tokens,
                 " tokens with ", alternatives,
                 " alternatives each, are more than ", kMaxPromptLogprobs);
}

// What is about sessions and completions, and must fit together.
absl::Status ApplyStart(const v1::GenerateRequest& request,
                        const ServiceContext& context, TurnRequest& turn) {
  if (request.start_case() == v1::GenerateRequest::kSessionId) {
    RETURN_IF_ERROR(ValidateSessionId(request.session_id(), "session_id"));
    turn.session = SessionKey{turn.tenant, request.session_id()};
  } else if (request.has_expected_revision()) {
    return Invalid("expected_revision", "needs a session_id");
  } else if (request.create_session()) {
    return Invalid("create_session", "needs a session_id");
  }
  if (request.start_case() == v1::GenerateRequest::kPreset) {
    RETURN_IF_ERROR(ValidatePresetName(request.preset(), "preset"));
    turn.preset = PresetKey(turn.tenant, request.preset());
  }
  turn.acquire.expected_revision = ExpectedRevisionOf(request);
  turn.acquire.create = request.create_session();
  if (!v1::CommitPolicy_IsValid(request.commit())) {
    return Invalid("commit", request.commit(), " is not a CommitPolicy");
  }
  if (!v1::OnCancel_IsValid(request.on_cancel())) {
    return Invalid("on_cancel", request.on_cancel(), " is not an OnCancel");
  }
  turn.commit = request.commit() != v1::COMMIT_POLICY_NEVER;
  turn.acquire.commit = turn.commit;
  turn.keep_on_cancel = request.on_cancel() != v1::ON_CANCEL_ROLL_BACK;

  const uint32_t n = request.has_n() ? request.n() : 1;
  const int64_t most =
      std::min({int64_t{kMaxCompletions}, context.options.max_running,
                context.sessions.num_slots()});
  if (n < 1 || n > most) {
    return Invalid("n", n, " is not in [1, ", most, "]");
  }
  if (n > 1 && turn.session.has_value() && turn.commit) {
    return Invalid("n", n,
                   " completions cannot all be the session's next turn; set "
                   "commit to COMMIT_POLICY_NEVER");
  }
  turn.n = static_cast<int32_t>(n);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> EncodeText(std::string_view text,
                                                bool allow_special,
                                                const ServiceContext& context) {
  absl::StatusOr<std::vector<int32_t>> ids = context.tokenizer.EncodeUpTo(
      text, allow_special,
      static_cast<size_t>(context.options.max_prompt_tokens));
  if (absl::IsResourceExhausted(ids.status())) {
    return RefuseTokens("text", context);
  }
  if (!ids.ok()) return Invalid("text", ids.status().message());
  return ids;
}

absl::Status RefuseTokens(std::string_view field,
                          const ServiceContext& context) {
  context.metrics.CountRejected(RejectReason::kTooLarge);
  return Invalid(field, "more tokens than the server takes, ",
                 context.options.max_prompt_tokens);
}

absl::StatusOr<SessionPage> ListPage(SessionManager& sessions,
                                     std::string_view tenant,
                                     std::optional<uint32_t> page_size,
                                     const std::string& after) {
  const uint32_t size = page_size.value_or(kDefaultPage);
  if (size < 1 || size > kMaxPage) {
    return Invalid("page_size", size, " is not in [1, ", kMaxPage, "]");
  }
  if (!after.empty() && !ValidateSessionId(after, "page_token").ok()) {
    return Invalid("page_token", "is none that the page before gave");
  }
  // One more than asked for tells whether there is another page. A page's token
  // is its last id.
  SessionPage page;
  ASSIGN_OR_RETURN(page.sessions, sessions.List(tenant, after, size + 1));
  if (page.sessions.size() > size) {
    page.sessions.pop_back();
    page.next = page.sessions.back().stored.id;
  }
  return page;
}

absl::StatusOr<SealOptions> ToSealOptions(const v1::SealOptions& options,
                                          const std::string& field) {
  SealOptions seal;
  seal.encoding.zstd = options.zstd();
  switch (options.elements()) {
    case v1::STATE_ELEMENTS_UNSPECIFIED:
    case v1::STATE_ELEMENTS_F32:
      break;
    case v1::STATE_ELEMENTS_BF16:
      seal.encoding.elements = StateEncoding::kBf16;
      break;
    default:
      return Invalid(field + ".elements", static_cast<int>(options.elements()),
                     " is not a StateElements");
  }
  if (options.has_ttl_ms()) {
    RETURN_IF_ERROR(
        ValidateTtl(options.ttl_ms(), field + ".ttl_ms", /*least=*/1));
    seal.ttl_ms = static_cast<int64_t>(options.ttl_ms());
  }
  return seal;
}

absl::Status ValidateTtl(uint64_t ttl_ms, std::string_view field,
                         uint64_t least) {
  // A hundred years: far from where milliseconds since 1970 overflow.
  constexpr uint64_t kMaxTtlMs = uint64_t{100} * 365 * 24 * 3'600'000;
  if (ttl_ms >= least && ttl_ms <= kMaxTtlMs) return absl::OkStatus();
  return Invalid(field, ttl_ms, " is not in [", least, ", ", kMaxTtlMs, "]");
}

absl::Status ValidateTokenIds(std::span<const int32_t> ids,
                              std::string_view field, int64_t vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size) {
      return Invalid(absl::StrCat(ToAbsl(field), "[", i, "]"), ids[i],
                     " is not in [0, ", vocab_size, ")");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<TurnRequest> ToTurnRequest(const v1::GenerateRequest& request,
                                          const ServiceContext& context) {
  TurnRequest turn;
  RETURN_IF_ERROR(ApplyRequestId(request.request_id(), turn));
  turn.tenant = context.options.tenant;
  RETURN_IF_ERROR(ApplyStart(request, context, turn));
  ApplyIdentity(request, turn);
  ASSIGN_OR_RETURN(turn.sampling,
                   ToSampling(request.sampling(), context.model.vocab_size));
  RETURN_IF_ERROR(ApplyStopping(request.stopping(), context, turn));
  RETURN_IF_ERROR(ApplyOutput(request.output(), turn));
  // What takes time comes last.
  if (request.start_case() == v1::GenerateRequest::kSnapshot) {
    ASSIGN_OR_RETURN(turn.snapshot, context.sessions.client_states().Open(
                                        turn.tenant, request.snapshot()));
  }
  turn.input = request.has_messages() ? "messages" : InputName(request);
  if (request.has_messages()) {
    RETURN_IF_ERROR(ApplyMessages(request, context, turn));
  } else {
    ASSIGN_OR_RETURN(turn.prompt, ToPrompt(request, context));
  }
  RETURN_IF_ERROR(CheckPromptLogprobs(turn));
  if (turn.prompt.empty() &&
      request.start_case() == v1::GenerateRequest::START_NOT_SET) {
    return Invalid(
        turn.input,
        "a request without a session, preset or snapshot needs at least one "
        "token");
  }
  return turn;
}

absl::StatusOr<TurnRequest> ToTurnRequest(const v1::AppendRequest& request,
                                          const ServiceContext& context) {
  TurnRequest turn;
  RETURN_IF_ERROR(ApplyRequestId(request.request_id(), turn));
  turn.tenant = context.options.tenant;
  RETURN_IF_ERROR(ValidateSessionId(request.session_id(), "session_id"));
  turn.session = SessionKey{turn.tenant, request.session_id()};
  ApplyIdentity(request, turn);
  turn.acquire.expected_revision = ExpectedRevisionOf(request);
  turn.acquire.create = request.create_session();
  turn.max_new_tokens = 0;
  turn.want_text = false;
  turn.input = InputName(request);
  ASSIGN_OR_RETURN(turn.prompt, ToPrompt(request, context));
  if (turn.prompt.empty()) {
    return Invalid(turn.input, "needs at least one token to append");
  }
  return turn;
}

absl::StatusOr<TurnRequest> ToTurnRequest(const v1::ScoreRequest& request,
                                          const ServiceContext& context) {
  TurnRequest turn;
  RETURN_IF_ERROR(ApplyRequestId(request.request_id(), turn));
  turn.tenant = context.options.tenant;
  turn.max_new_tokens = 0;
  turn.want_text = false;
  turn.prompt_logprobs = PromptLogprobs::kStreamed;
  RETURN_IF_ERROR(ApplyLogprobs(request.logprobs(), "logprobs", turn));
  turn.input = InputName(request);
  ASSIGN_OR_RETURN(turn.prompt, ToPrompt(request, context));
  if (turn.prompt.size() < 2) {
    return Invalid(turn.input, turn.prompt.size(),
                   " tokens are less than 2; the first has nothing before it "
                   "and is not scored");
  }
  return turn;
}

}  // namespace reprise
