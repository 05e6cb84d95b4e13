#include "launch/chat/edited_lines.h"

#include <fmt/core.h>
#include <histedit.h>
#include <langinfo.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <exception>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace moesaic {
namespace {

constexpr int kMostRemembered = 1000;
/// Between what the terminal shows of a prompt and what it does (colours).
constexpr char kUnseen = '\1';

struct EndEditing {
  void operator()(EditLine* editor) const { ::el_end(editor); }
};
struct EndHistory {
  void operator()(History* history) const { ::history_end(history); }
};

/// libedit reads characters as the locale has them.
void take_utf8_locale() {
  std::setlocale(LC_CTYPE, "");
  if (std::string_view(::nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

struct EditedLines::Parts {
  Waiting waiting;
  std::string history_file;
  std::unique_ptr<History, EndHistory> history;
  std::unique_ptr<EditLine, EndEditing> editor;
  std::string prompt{};
  std::mbstate_t decoding{};
  Readiness state = Readiness::ready;
  std::exception_ptr failure{};  // must not pass through libedit
  bool has_ended = false;

  /// The next character of the terminal; whether there was one.
  bool read_character(wchar_t& character);
  void set_prompt(const std::string& text);
  void save() const;
};

namespace {

EditedLines::Parts& parts_of(EditLine* editor) {
  void* parts = nullptr;
  ::el_get(editor, EL_CLIENTDATA, &parts);
  return *static_cast<EditedLines::Parts*>(parts);
}

int read_one(EditLine* editor, wchar_t* character) {
  EditedLines::Parts& parts = parts_of(editor);
  try {
    if (parts.read_character(*character)) return 1;
  } catch (...) {
    parts.failure = std::current_exception();
  }
  return parts.has_ended ? 0 : -1;
}

char* show_prompt(EditLine* editor) {
  return parts_of(editor).prompt.data();
}

/// A shell that has stopped this process and let it go on may have left the terminal as it likes.
void edit_again_if_left(EditLine* editor) {
  termios mode{};
  if (::tcgetattr(STDIN_FILENO, &mode) != 0 || (mode.c_lflag & ICANON) == 0) return;
  ::el_set(editor, EL_PREP_TERM, 1);
  ::el_set(editor, EL_REFRESH);
}

}  // namespace

bool EditedLines::Parts::read_character(wchar_t& character) {
  while (true) {
    state = wait_for_input(STDIN_FILENO, waiting);
    if (state != Readiness::ready) return false;
    char byte = 0;
    const ssize_t count = ::read(STDIN_FILENO, &byte, 1);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    has_ended = count <= 0;  // a terminal that is gone too
    if (has_ended) return false;
    const std::size_t used = std::mbrtowc(&character, &byte, 1, &decoding);
    if (used == static_cast<std::size_t>(-2)) continue;  // in the middle of a character
    if (used <= 1) return true;
    decoding = {};  // no character: left out
  }
}

void EditedLines::Parts::set_prompt(const std::string& text) {
  prompt.clear();
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '\033') {
      prompt += text[at];
      continue;
    }
    const std::size_t end = std::min(text.find('m', at), text.size() - 1);
    prompt += kUnseen + text.substr(at, end + 1 - at) + kUnseen;
    at = end;
  }
}

void EditedLines::Parts::save() const {
  HistEvent event{};
  if (!history_file.empty()) ::history(history.get(), &event, H_SAVE, history_file.c_str());
}

EditedLines::EditedLines(Waiting waiting, std::string history_file)
    : parts_(std::make_unique<Parts>()) {
  take_utf8_locale();
  parts_->history_file = std::move(history_file);
  parts_->history.reset(::history_init());
  std::FILE* const shown = ::isatty(STDOUT_FILENO) == 1 ? stdout : stderr;
  EditLine* const editor = ::el_init("moesaic", stdin, shown, stderr);
  parts_->editor.reset(editor);
  require(editor != nullptr && parts_->history != nullptr, ErrorKind::resource,
          "the terminal cannot be used for editing");
  parts_->waiting = std::move(waiting);
  parts_->waiting.on_idle = [editor, on_idle = std::move(parts_->waiting.on_idle)] {
    edit_again_if_left(editor);
    if (on_idle) on_idle();
  };
  HistEvent event{};
  ::history(parts_->history.get(), &event, H_SETSIZE, kMostRemembered);
  ::history(parts_->history.get(), &event, H_SETUNIQUE, 1);
  if (!parts_->history_file.empty()) {
    ::history(parts_->history.get(), &event, H_LOAD, parts_->history_file.c_str());
  }
  ::el_set(editor, EL_CLIENTDATA, parts_.get());
  ::el_set(editor, EL_PROMPT_ESC, &show_prompt, kUnseen);
  ::el_set(editor, EL_EDITOR, "emacs");
  ::el_set(editor, EL_HIST, &::history, parts_->history.get());
  ::el_set(editor, EL_GETCFN, &read_one);
  ::el_source(editor, nullptr);
}

EditedLines::~EditedLines() = default;

Line EditedLines::read(const std::string& prompt) {
  parts_->set_prompt(prompt);
  parts_->state = Readiness::ready;
  parts_->decoding = {};
  ::el_resize(parts_->editor.get());
  // Before the prompt: keys that are pressed as soon as it is seen mean what they mean to libedit.
  ::el_set(parts_->editor.get(), EL_PREP_TERM, 1);
  int count = 0;
  const char* const read = ::el_gets(parts_->editor.get(), &count);
  if (parts_->failure) std::rethrow_exception(std::exchange(parts_->failure, nullptr));
  if (parts_->state != Readiness::ready || read == nullptr || count <= 0) {
    ::el_reset(parts_->editor.get());
    fmt::print(stderr, "\n");
    if (parts_->state == Readiness::interrupted) return {.kind = Line::Kind::interrupted};
    return {};
  }
  Line line{Line::Kind::text, std::string(read, static_cast<std::size_t>(count))};
  if (line.text.ends_with('\n')) line.text.pop_back();
  return line;
}

void EditedLines::remember(const std::string& message) {
  HistEvent event{};
  ::history(parts_->history.get(), &event, H_ENTER, message.c_str());
  parts_->save();
}

std::string default_history_file() {
  namespace fs = std::filesystem;
  const char* const state = std::getenv("XDG_STATE_HOME");
  const char* const home = std::getenv("HOME");
  fs::path directory;
  if (state != nullptr && *state != '\0') {
    directory = state;
  } else if (home != nullptr && *home != '\0') {
    directory = fs::path(home) / ".local" / "state";
  } else {
    return "";
  }
  directory /= "moesaic";
  std::error_code ignored;
  fs::create_directories(directory, ignored);
  return (directory / "chat_history").string();
}

}  // namespace moesaic
