#include "client/generate_options.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "client/number_option.h"

namespace reprise {
namespace {

// What most calls need comes first in the help.
constexpr char kMain[] = "Options";

// An option that may be given several times. `check` says what is wrong with a
// value, or nothing; `add` gets those that are right.
void AddRepeated(CLI::App& app, const std::string& group,
                 const std::string& name, const std::string& type,
                 const std::string& description,
                 std::function<std::string(std::string&)> check,
                 std::function<void(const std::string&)> add) {
  auto convert = [add = std::move(add)](const CLI::results_t& values) {
    for (const std::string& value : values) add(value);
    return true;
  };
  app.add_option(name, std::move(convert), description)
      ->type_name(type)
      ->type_size(1)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(group)
      ->check(CLI::Validator(std::move(check), ""));
}

void AddSwitch(CLI::App& app, const std::string& group, const std::string& name,
               const std::string& description, std::function<void()> set) {
  app.add_flag_callback(name, std::move(set), description)->group(group);
}

void AddPenaltyOptions(CLI::App& app, v1::GenerateRequest& request) {
  const std::string group = "Sampling";
  AddNumber<float>(app, group, "--repetition-penalty",
                   "Above 1 makes used tokens rarer, over 0 to 10 [1.0]",
                   [&request](float x) {
                     request.mutable_sampling()->set_repetition_penalty(x);
                   });
  AddNumber<float>(app, group, "--presence-penalty",
                   "Taken off the logit of used tokens, -2..2 [0]",
                   [&request](float x) {
                     request.mutable_sampling()->set_presence_penalty(x);
                   });
  AddNumber<float>(app, group, "--frequency-penalty",
                   "Taken off once for every use, -2..2 [0]",
                   [&request](float x) {
                     request.mutable_sampling()->set_frequency_penalty(x);
                   });
  AddNumber<float>(app, group, "--penalty-decay",
                   "What a penalty keeps per token, over 0 to 1 [1.0]",
                   [&request](float x) {
                     request.mutable_sampling()->set_penalty_decay(x);
                   });
  AddNumber<uint32_t>(app, group, "--penalty-last-n",
                      "Penalties see the last N tokens, 0: none, at "
                      "most\n65536 [whole session]",
                      [&request](uint32_t n) {
                        request.mutable_sampling()->set_penalty_last_n(n);
                      });
}

struct LogitBias {
  int32_t token = 0;
  float bias = 0;
};

// "ID:X"
std::optional<LogitBias> ParseLogitBias(const std::string& text) {
  const size_t colon = text.find(':');
  LogitBias bias;
  if (colon == std::string::npos ||
      !ParseNumber(text.substr(0, colon), bias.token) ||
      !ParseNumber(text.substr(colon + 1), bias.bias) || bias.token < 0) {
    return std::nullopt;
  }
  return bias;
}

std::string CheckLogitBias(std::string& text) {
  if (ParseLogitBias(text)) return "";
  return "'" + text +
         "' is not ID:X with a whole number from 0 to 2147483647 and a number";
}

std::string CheckToken(std::string& text) {
  return CheckNumber<int32_t>(text, {.min = 0});
}

std::string CheckAnything(std::string&) { return ""; }

void AddSamplingOptions(CLI::App& app, v1::GenerateRequest& request) {
  const std::string group = "Sampling";
  AddNumber<float>(
      app, kMain, "--temperature", "0 (always the likeliest token) to 2 [1.0]",
      [&request](float x) { request.mutable_sampling()->set_temperature(x); });
  AddNumber<uint64_t>(
      app, kMain, "--seed", "Same seed and request, same text [drawn]",
      [&request](uint64_t n) { request.mutable_sampling()->set_seed(n); });
  AddNumber<uint32_t>(
      app, group, "--top-k", "Keeps the N likeliest tokens [all]",
      [&request](uint32_t n) { request.mutable_sampling()->set_top_k(n); });
  AddNumber<float>(
      app, group, "--top-p",
      "Keeps the likeliest that sum up to X, over 0 to 1\n[1.0]",
      [&request](float x) { request.mutable_sampling()->set_top_p(x); });
  AddNumber<float>(
      app, group, "--min-p",
      "Drops those below X times the likeliest, 0 to\nbelow 1 [0]",
      [&request](float x) { request.mutable_sampling()->set_min_p(x); });
  AddNumber<float>(
      app, group, "--typical-p",
      "Keeps the most typical that sum up to X, over 0 to 1\n[1.0]",
      [&request](float x) { request.mutable_sampling()->set_typical_p(x); });
  AddPenaltyOptions(app, request);
  AddRepeated(app, group, "--logit-bias", "ID:X",
              "Adds X to the logit of token ID; repeatable", CheckLogitBias,
              [&request](const std::string& text) {
                const LogitBias bias = ParseLogitBias(text).value();
                auto& all = *request.mutable_sampling()->mutable_logit_bias();
                all[bias.token] = bias.bias;
              });
}

void AddStoppingOptions(CLI::App& app, v1::GenerateRequest& request) {
  const std::string group = "Stopping";
  AddNumber<uint32_t>(app, group, "--min-tokens",
                      "No end of text before N new tokens [0]",
                      [&request](uint32_t n) {
                        request.mutable_stopping()->set_min_new_tokens(n);
                      });
  AddRepeated(app, kMain, "--stop", "TEXT",
              "Stops before this text; repeatable", CheckAnything,
              [&request](const std::string& text) {
                request.mutable_stopping()->add_stop(text);
              });
  AddRepeated(app, group, "--stop-token", "ID",
              "Stops at this token; repeatable", CheckToken,
              [&request](const std::string& text) {
                int32_t token = 0;
                ParseNumber(text, token);
                request.mutable_stopping()->add_stop_token_ids(token);
              });
  AddSwitch(app, group, "--include-stop", "Shows the stop text that matched",
            [&request] { request.mutable_stopping()->set_include_stop(true); });
  AddSwitch(app, group, "--ignore-eos", "Goes on after an end of text",
            [&request] { request.mutable_stopping()->set_ignore_eos(true); });
  AddNumber<uint32_t>(app, group, "--time-limit-ms",
                      "Stops after so long [no limit]", [&request](uint32_t n) {
                        request.mutable_stopping()->set_time_limit_ms(n);
                      });
}

}  // namespace

void AddMaxTokensOption(CLI::App& app, const std::string& default_text,
                        v1::GenerateRequest& request) {
  AddNumber<uint32_t>(app, kMain, "--max-tokens",
                      "At most N new tokens [" + default_text + "]",
                      [&request](uint32_t n) {
                        request.mutable_stopping()->set_max_new_tokens(n);
                      });
}

void AddGenerateOptions(CLI::App& app, v1::GenerateRequest& request) {
  AddSamplingOptions(app, request);
  AddStoppingOptions(app, request);
  AddSwitch(app, "Stopping", "--roll-back-on-cancel",
            "Ctrl-C keeps nothing of the turn in the session",
            [&request] { request.set_on_cancel(v1::ON_CANCEL_ROLL_BACK); });
  AddSwitch(app, "Input", "--special-tokens",
            "Names of special tokens in the text mean them",
            [&request] { request.set_allow_special_tokens(true); });
}

void AddCompleteOptions(CLI::App& app, v1::GenerateRequest& request) {
  AddNumber<uint64_t>(
      app, "Session", "--expected-revision",
      "Fails if the session is at another revision",
      [&request](uint64_t n) { request.set_expected_revision(n); });
  AddSwitch(app, "Session", "--no-commit", "Leaves the session as it was",
            [&request] { request.set_commit(v1::COMMIT_POLICY_NEVER); });
  AddNumber<uint32_t>(app, "Output", "--n",
                      "N completions; a session needs --no-commit [1]",
                      [&request](uint32_t n) { request.set_n(n); });
  AddNumber<uint32_t>(
      app, "Output", "--logprobs",
      "Of each token and the N likeliest; needs --json",
      [&request](uint32_t n) { request.mutable_output()->set_logprobs(n); });
  AddSwitch(
      app, "Output", "--prompt-logprobs", "Those of the prompt; needs --json",
      [&request] { request.mutable_output()->set_prompt_logprobs(true); });
  AddSwitch(app, "Output", "--token-ids", "Ids of the tokens; needs --json",
            [&request] { request.mutable_output()->set_token_ids(true); });
  app.add_option_function<std::string>(
         "--request-id",
         [&request](const std::string& id) { request.set_request_id(id); },
         "Names the request in the answer, and in the server's\nlog at level "
         "debug")
      ->type_name("ID")
      ->group("Output");
}

}  // namespace reprise
