#pragma once

#include <memory>
#include <string>

#include "launch/chat/line_source.h"

namespace moesaic {

/// Lines that a person edits on a terminal (libedit): keys of Emacs, or what ~/.editrc says;
/// earlier messages come back with the arrows.
class EditedLines : public LineSource {
 public:
  /// The terminal is the standard input and output (or error output). What was written in earlier
  /// conversations comes from `history_file`, and goes there; empty: none is kept. A file that
  /// cannot be read or written is no reason not to talk.
  EditedLines(Waiting waiting, std::string history_file);
  ~EditedLines() override;
  EditedLines(const EditedLines&) = delete;
  EditedLines& operator=(const EditedLines&) = delete;

  [[nodiscard]] Line read(const std::string& prompt) override;
  void remember(const std::string& message) override;

  struct Parts;

 private:
  std::unique_ptr<Parts> parts_;
};

/// Where messages are kept by default: $XDG_STATE_HOME/moesaic/chat_history, or that below
/// ~/.local/state; empty without a home. Its directory is made.
[[nodiscard]] std::string default_history_file();

}  // namespace moesaic
