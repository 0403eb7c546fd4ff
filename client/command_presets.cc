#include <string>

#include "client/commands.h"
#include "client/format.h"
#include "engine/base/clock.h"
#include "engine/base/status_macros.h"

namespace reprise {
namespace {

// Page after page, each as its own table or JSON line.
absl::Status ListPresets(const CommandLine& line,
                         const CommandContext& context) {
  v1::ListPresetsRequest request;
  uint64_t count = 0;
  do {
    ASSIGN_OR_RETURN(const v1::ListPresetsResponse page,
                     context.client.ListPresets(request));
    count += page.presets_size();
    if (line.json) {
      RETURN_IF_ERROR(PrintJson(page, context.terminal));
    } else if (page.presets_size() > 0) {
      Table table({{"NAME", Align::kLeft},
                   {"TOKENS", Align::kRight},
                   {"SNAPSHOT", Align::kRight},
                   {"CREATED", Align::kLeft},
                   {"FROM", Align::kLeft}});
      for (const v1::Preset& preset : page.presets()) {
        table.AddRow({preset.name(), FormatCount(preset.tokens()),
                      FormatBytes(preset.snapshot_bytes()),
                      FormatTime(preset.created_unix_ms()),
                      preset.from_session()});
      }
      context.terminal.Print(table.ToString());
    }
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() && !context.terminal.out_closed() &&
           context.terminal.status().ok());
  if (!line.json) {
    context.terminal.Note(FormatCount(count) +
                          (count == 1 ? " preset" : " presets"));
  }
  return absl::OkStatus();
}

absl::Status SavePreset(const CommandLine& line,
                        const CommandContext& context) {
  const int64_t start_ns = Clock::Real().MonotonicNs();
  ASSIGN_OR_RETURN(const v1::Preset preset,
                   context.client.SavePreset(line.save_preset));
  if (line.json) return PrintJson(preset, context.terminal);
  context.terminal.Print(preset.name() + " is a preset, made of " +
                         preset.from_session() + ", after " + Since(start_ns) +
                         ": " + FormatTokens(preset.tokens()) + ", " +
                         FormatBytes(preset.snapshot_bytes()) + "\n");
  return absl::OkStatus();
}

absl::Status DeletePreset(const CommandLine& line,
                          const CommandContext& context,
                          const std::string& name) {
  RETURN_IF_ERROR(context.client.DeletePreset(name));
  if (line.json) return PrintJson(v1::DeletePresetResponse(), context.terminal);
  context.terminal.Print("preset " + name + " is deleted\n");
  return absl::OkStatus();
}

}  // namespace

absl::Status RunPresets(const CommandLine& line,
                        const CommandContext& context) {
  if (line.command == Command::kPresetsList) return ListPresets(line, context);
  if (line.command == Command::kPresetsSave) return SavePreset(line, context);
  return RunForEach(line, context, [&](const std::string& name) {
    return DeletePreset(line, context, name);
  });
}

}  // namespace reprise
