// From the server's plain structs to the messages that are sent.
#ifndef SERVER_INFERENCE_SERVICE_RESPONSE_H_
#define SERVER_INFERENCE_SERVICE_RESPONSE_H_

#include <cstdint>
#include <string>

#include "engine/tokenizer.h"
#include "proto/inference.pb.h"
#include "server/client_states.h"
#include "server/inference_service_context.h"

namespace reprise {

// 16 hexadecimal digits.
std::string FingerprintText(uint64_t fingerprint);

v1::ResumeSource ToProto(ResumeSource source);
v1::FinishReason ToProto(FinishReason reason);

// The part of Started that is known from the request, and the `turn` made of
// it: its ids, the seed and the parameters as used.
v1::Started StartedOf(const v1::GenerateRequest& request,
                      const TurnRequest& turn, const ModelInfo& model);

// The events of a stream. Started keeps what StartedOf filled in.
void Fill(const StartedEvent& event, const Tokenizer& tokenizer,
          v1::Started& out);
// Appends to `out` if it holds text already: deltas that waited together are
// sent as one.
void Append(const DeltaEvent& event, const Tokenizer& tokenizer,
            v1::Delta& out);
// Takes the sealed state out of the event.
void Fill(FinishedEvent& event, bool timings, v1::Finished& out);
// What events consist of.
void Fill(const SampledToken& token, const Tokenizer& tokenizer,
          v1::TokenLogprobs& out);
void Fill(const RequestTimings& from, v1::Timings& to);

// All but the list of checkpoints, which would make pages of sessions large.
void Fill(const SessionInfo& info, v1::Session& out);
void FillCheckpoints(const StoredSession& stored, v1::Session& out);
void Fill(const SealedState& sealed, v1::SnapshotInfo& out);
void Fill(const ServiceContext& context, v1::Model& out);

}  // namespace reprise

#endif  // SERVER_INFERENCE_SERVICE_RESPONSE_H_
