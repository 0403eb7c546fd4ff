// The options of `complete` and `chat` that become fields of a GenerateRequest.
// Whether a value fits its field is checked here. Narrower ranges are the
// server's to check: it knows the model, and its errors name the field, the
// value and the range.
#ifndef CLIENT_GENERATE_OPTIONS_H_
#define CLIENT_GENERATE_OPTIONS_H_

#include <CLI/App.hpp>
#include <string>

#include "proto/inference.pb.h"

namespace reprise {

// All take `request` by reference: it must outlive the parsing, and only
// options that were given touch it.

// `default_text` is what the help says is used otherwise.
void AddMaxTokensOption(CLI::App& app, const std::string& default_text,
                        v1::GenerateRequest& request);

// Sampling and stopping.
void AddGenerateOptions(CLI::App& app, v1::GenerateRequest& request);

// What only makes sense for a single completion: how it commits, how many, and
// what its messages hold.
void AddCompleteOptions(CLI::App& app, v1::GenerateRequest& request);

}  // namespace reprise

#endif  // CLIENT_GENERATE_OPTIONS_H_
