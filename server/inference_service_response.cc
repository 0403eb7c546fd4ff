#include "server/inference_service_response.h"

#include <cstdio>
#include <utility>

namespace reprise {
namespace {

void Fill(const TokenUsage& usage, v1::Usage& out) {
  out.set_prompt_tokens(static_cast<uint32_t>(usage.prompt_tokens));
  out.set_cached_tokens(static_cast<uint64_t>(usage.cached_tokens));
  out.set_completion_tokens(static_cast<uint32_t>(usage.completion_tokens));
}

void Fill(const SamplingParams& params, v1::SamplingOptions& out) {
  out.set_temperature(params.temperature);
  if (params.top_k > 0) out.set_top_k(static_cast<uint32_t>(params.top_k));
  out.set_top_p(params.top_p);
  out.set_min_p(params.min_p);
  out.set_typical_p(params.typical_p);
  out.set_repetition_penalty(params.repetition_penalty);
  out.set_presence_penalty(params.presence_penalty);
  out.set_frequency_penalty(params.frequency_penalty);
  out.set_penalty_decay(params.penalty_decay);
  if (params.penalty_last_n.has_value()) {
    out.set_penalty_last_n(static_cast<uint32_t>(*params.penalty_last_n));
  }
  for (const auto& [token, bias] : params.logit_bias) {
    (*out.mutable_logit_bias())[token] = bias;
  }
  out.set_seed(params.seed);
}

void FillStopping(const TurnRequest& turn, v1::StoppingOptions& out) {
  out.set_max_new_tokens(static_cast<uint32_t>(turn.max_new_tokens));
  out.set_min_new_tokens(static_cast<uint32_t>(turn.min_new_tokens));
  for (const std::string& stop : turn.stop) out.add_stop(stop);
  for (const int32_t id : turn.stop_tokens) out.add_stop_token_ids(id);
  out.set_include_stop(turn.include_stop);
  if (turn.time_limit_ms.has_value()) {
    out.set_time_limit_ms(static_cast<uint32_t>(*turn.time_limit_ms));
  }
}

v1::SessionPlace ToProto(SessionPlace place) {
  switch (place) {
    case SessionPlace::kActive:
      return v1::SESSION_PLACE_ACTIVE;
    case SessionPlace::kResident:
      return v1::SESSION_PLACE_RESIDENT;
    case SessionPlace::kMemory:
      return v1::SESSION_PLACE_MEMORY;
    case SessionPlace::kSuspended:
      return v1::SESSION_PLACE_SUSPENDED;
  }
  return v1::SESSION_PLACE_UNSPECIFIED;
}

}  // namespace

std::string FingerprintText(uint64_t fingerprint) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx",
                static_cast<unsigned long long>(fingerprint));
  return text;
}

v1::ResumeSource ToProto(ResumeSource source) {
  switch (source) {
    case ResumeSource::kNone:
      return v1::RESUME_SOURCE_NONE;
    case ResumeSource::kSlot:
      return v1::RESUME_SOURCE_SLOT;
    case ResumeSource::kMemory:
      return v1::RESUME_SOURCE_MEMORY;
    case ResumeSource::kStore:
      return v1::RESUME_SOURCE_STORE;
    case ResumeSource::kClient:
      return v1::RESUME_SOURCE_CLIENT;
    case ResumeSource::kPrefix:
      return v1::RESUME_SOURCE_PREFIX;
  }
  return v1::RESUME_SOURCE_UNSPECIFIED;
}

v1::FinishReason ToProto(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return v1::FINISH_REASON_STOP;
    case FinishReason::kStopToken:
      return v1::FINISH_REASON_STOP_TOKEN;
    case FinishReason::kStopString:
      return v1::FINISH_REASON_STOP_STRING;
    case FinishReason::kLength:
      return v1::FINISH_REASON_LENGTH;
    case FinishReason::kTimeLimit:
      return v1::FINISH_REASON_TIME_LIMIT;
    case FinishReason::kCancelled:
      return v1::FINISH_REASON_CANCELLED;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

void Fill(const SampledToken& token, const Tokenizer& tokenizer,
          v1::TokenLogprobs& out) {
  const auto fill = [&tokenizer](int32_t id, float logprob,
                                 v1::TokenLogprob& to) {
    to.set_token_id(id);
    to.set_logprob(logprob);
    to.set_bytes(std::string(tokenizer.TokenBytes(id)));
  };
  fill(token.token, token.logprob, *out.mutable_chosen());
  for (const TokenLogprob& other : token.top) {
    fill(other.token, other.logprob, *out.add_top());
  }
}

v1::Started StartedOf(const v1::GenerateRequest& request,
                      const TurnRequest& turn, const ModelInfo& model) {
  v1::Started started;
  started.set_request_id(turn.request_id);
  started.set_model_fingerprint(FingerprintText(model.fingerprints.model));
  started.set_seed(turn.sampling.seed);
  Fill(turn.sampling, *started.mutable_sampling());
  FillStopping(turn, *started.mutable_stopping());
  // The turn does not tell it from a model without such tokens.
  started.mutable_stopping()->set_ignore_eos(request.stopping().ignore_eos());
  if (turn.session.has_value()) started.set_session_id(turn.session->id);
  return started;
}

void Fill(const StartedEvent& event, const Tokenizer& tokenizer,
          v1::Started& out) {
  out.set_prompt_tokens(static_cast<uint32_t>(event.prompt_tokens));
  out.set_cached_tokens(static_cast<uint64_t>(event.cached_tokens));
  out.set_resumed_from(ToProto(event.resumed_from));
  out.set_resume_reason(event.resume_reason);
  out.set_revision(event.revision);
  if (event.repeated_seed.has_value()) {
    out.set_repeated(true);
    out.set_seed(*event.repeated_seed);
    out.mutable_sampling()->set_seed(*event.repeated_seed);
  }
  for (const SampledToken& token : event.prompt_logprobs) {
    Fill(token, tokenizer, *out.add_prompt_logprobs());
  }
}

void Append(const DeltaEvent& event, const Tokenizer& tokenizer,
            v1::Delta& out) {
  out.set_index(static_cast<uint32_t>(event.index));
  out.mutable_text()->append(event.text);
  for (const int32_t id : event.token_ids) out.add_token_ids(id);
  for (const SampledToken& token : event.logprobs) {
    Fill(token, tokenizer, *out.add_logprobs());
  }
  Fill(event.usage, *out.mutable_usage());
}

void Fill(FinishedEvent& event, bool timings, v1::Finished& out) {
  out.set_index(static_cast<uint32_t>(event.index));
  out.set_reason(ToProto(event.reason));
  out.set_matched_stop(event.matched_stop);
  if (event.matched_token.has_value()) {
    out.set_matched_token(*event.matched_token);
  }
  Fill(event.usage, *out.mutable_usage());
  if (event.revision.has_value()) out.set_revision(*event.revision);
  if (event.sealed.has_value()) {
    Fill(*event.sealed, *out.mutable_snapshot()->mutable_info());
    out.mutable_snapshot()->set_data(std::move(event.sealed->bytes));
  }
  if (timings) Fill(event.timings, *out.mutable_timings());
}

void Fill(const RequestTimings& from, v1::Timings& to) {
  to.set_queue_us(static_cast<uint64_t>(from.queue_us));
  to.set_resume_us(static_cast<uint64_t>(from.resume_us));
  to.set_prefill_us(static_cast<uint64_t>(from.prefill_us));
  to.set_first_token_us(static_cast<uint64_t>(from.first_token_us));
  to.set_per_token_us(static_cast<uint64_t>(from.per_token_us));
  to.set_commit_us(static_cast<uint64_t>(from.commit_us));
  to.set_total_us(static_cast<uint64_t>(from.total_us));
}

void Fill(const SessionInfo& info, v1::Session& out) {
  const StoredSession& stored = info.stored;
  out.set_id(stored.id);
  out.set_revision(stored.revision);
  out.set_tokens(stored.tokens);
  out.set_place(ToProto(info.place));
  out.set_snapshot_bytes(stored.snapshot_bytes);
  out.set_created_unix_ms(stored.created_unix_ms);
  out.set_updated_unix_ms(stored.updated_unix_ms);
  out.set_forked_from(stored.forked_from);
  if (stored.expires_unix_ms != 0) {
    out.set_expires_unix_ms(stored.expires_unix_ms);
  }
  uint64_t checkpoint_bytes = 0;
  for (const StoredCheckpoint& checkpoint : stored.checkpoints) {
    checkpoint_bytes += checkpoint.snapshot_bytes;
  }
  out.set_checkpoint_bytes(checkpoint_bytes);
}

void FillCheckpoints(const StoredSession& stored, v1::Session& out) {
  for (const StoredCheckpoint& from : stored.checkpoints) {
    v1::Checkpoint& to = *out.add_checkpoints();
    to.set_revision(from.revision);
    to.set_tokens(from.tokens);
    to.set_snapshot_bytes(from.snapshot_bytes);
    to.set_unix_ms(from.unix_ms);
  }
}

void Fill(const SealedState& sealed, v1::SnapshotInfo& out) {
  const SealLabel& label = sealed.label;
  out.set_session_id(label.session);
  out.set_revision(label.revision);
  out.set_tokens(sealed.tokens);
  out.set_sealed_bytes(sealed.bytes.size());
  if (label.expires_unix_ms != 0) {
    out.set_expires_unix_ms(label.expires_unix_ms);
  }
  out.set_elements(sealed.encoding.exact() ? v1::STATE_ELEMENTS_F32
                                           : v1::STATE_ELEMENTS_BF16);
  out.set_zstd(sealed.encoding.zstd);
}

void Fill(const ServiceContext& context, v1::Model& out) {
  const ModelInfo& info = context.model;
  out.set_name(info.name);
  out.set_family(info.family);
  out.set_description(info.description);
  out.set_vocab_size(static_cast<uint64_t>(info.vocab_size));
  out.set_d_model(static_cast<uint64_t>(info.d_model));
  out.set_num_layers(static_cast<uint64_t>(info.num_layers));
  out.set_num_parameters(static_cast<uint64_t>(info.num_parameters));
  out.set_weight_type(std::string(WeightTypeName(info.weight_type)));
  out.set_weight_bytes(static_cast<uint64_t>(info.weight_bytes));
  out.set_state_bytes(static_cast<uint64_t>(info.state_bytes));
  out.set_state_bytes_per_token(
      static_cast<uint64_t>(info.state_bytes_per_token));
  if (info.max_context.has_value()) {
    out.set_max_context(static_cast<uint64_t>(*info.max_context));
  }
  out.set_fingerprint(FingerprintText(info.fingerprints.model));
  out.set_tokenizer(std::string(context.tokenizer.kind()));
  for (const int32_t id : info.eos_tokens) out.add_eos_token_ids(id);
  out.set_cpu_isa(info.cpu_isa);
  out.set_server_version(REPRISE_VERSION);
  if (const absl::Status& chat = context.chat.status(); chat.ok()) {
    out.set_chat_template(context.chat.source());
  } else {
    out.set_chat_template_problem(std::string(chat.message()));
  }

  const ServerOptions& options = context.options;
  v1::ServerLimits& limits = *out.mutable_limits();
  limits.set_max_prompt_tokens(
      static_cast<uint64_t>(options.max_prompt_tokens));
  limits.set_max_new_tokens(static_cast<uint64_t>(options.max_new_tokens));
  limits.set_max_request_bytes(
      static_cast<uint64_t>(options.max_request_bytes));
  limits.set_max_queued_requests(static_cast<uint64_t>(options.max_queued));
  limits.set_max_running_requests(static_cast<uint64_t>(options.max_running));
  limits.set_resident_sessions(
      static_cast<uint64_t>(context.sessions.num_slots()));
}

}  // namespace reprise
