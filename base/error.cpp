#include "base/error.h"

#include <exception>
#include <new>
#include <system_error>

namespace moesaic {
namespace {

std::string escaped(char control) {
  switch (control) {
    case '\0':
      return "\\0";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return fmt::format("\\x{:02x}", static_cast<unsigned char>(control));
  }
}

}  // namespace

std::string without_controls(std::string_view text) {
  constexpr char kDelete = 0x7f;
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_control = (text[i] >= 0 && text[i] < ' ') || text[i] == kDelete;
    const bool is_our_line = text.substr(i).starts_with("\n  ");
    if (is_control && !is_our_line) {
      result += escaped(text[i]);
    } else {
      result += text[i];
    }
  }
  return result;
}

Error current_error() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return {ErrorKind::resource, "the system has no more memory"};
  } catch (const std::system_error& error) {  // as fmt::print, where the disk is full
    return {ErrorKind::resource, error.what()};
  } catch (const std::exception& error) {
    return {ErrorKind::internal, fmt::format("unexpected: {}", error.what())};
  } catch (...) {
    return {ErrorKind::internal, "unexpected: an exception of unknown type"};
  }
}

}  // namespace moesaic
